"""The functions of torch that run as they are on each shard, a row for each.

A row is `name(parameters) -> outputs: batch dims`, with torch's parameters. Outputs are
named where there are several, and * where their number depends on the arguments. The batch dims are
those that may be split:

    each        all; inputs broadcast against each other, as in elementwise functions
    but N       all but the last N dims of each input; `but 2 1` has one number for each input
    but dim     all but the dims that the argument `dim` names, or but all if it is None
    lead N      the first N dims
    values A    all of the argument A, and none of the others
    none        no dim: the inputs are gathered
    vector      there are no inputs: each rank keeps its part of the vector that torch makes

`linear` after them lets partial sums of the first input pass, `constant` means that torch has no
gradient, `reduced` that a loss of each element is computed first and reduced afterwards, and `view`
that the output is a view, whose inverse `torch_rows` names.
"""

LINALG = """
cholesky(input, upper=False, *, out=None): but 2
cholesky_inverse(input, upper=False, *, out=None): but 2
cholesky_solve(input, input2, upper=False, *, out=None): but 2
det(input): but 2
geqrf(input, *, out=None) -> a, tau: but 2 constant
inverse(input, *, out=None): but 2
orgqr(input, input2, *, out=None): but 2 1
slogdet(input, *, out=None) -> sign, logabsdet: but 2
vander(x, N=None, increasing=False): none constant
lu_solve(input, LU_data, LU_pivots, *, out=None): but 2 2 1
lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True, *, out=None) -> P, L, U: but 2 1
matrix_exp(input): but 2
ormqr(input, input2, input3, left=True, transpose=False, *, out=None): but 2 1 2
pinverse(input, rcond=1e-15): but 2
qr(input, some=True, *, out=None) -> Q, R: but 2
svd(input, some=True, compute_uv=True, *, out=None) -> U, S, V: but 2
triangular_solve(input, A, upper=True, transpose=False, unitriangular=False, *, out=None) ->
    solution, cloned_coefficient: but 2
logdet(input): but 2
linalg.cholesky(input, *, upper=False, out=None): but 2
linalg.cholesky_ex(input, *, upper=False, check_errors=False, out=None) -> L, info: but 2
linalg.cond(input, p=None, *, out=None): but 2
linalg.det(A, *, out=None): but 2
linalg.eig(input, *, out=None) -> eigenvalues, eigenvectors: but 2
linalg.eigh(input, UPLO="L", *, out=None) -> eigenvalues, eigenvectors: but 2
linalg.eigvals(input, *, out=None): but 2
linalg.eigvalsh(input, UPLO="L", *, out=None): but 2
linalg.householder_product(input, tau, *, out=None): but 2 1
linalg.inv(A, *, out=None): but 2
linalg.inv_ex(A, *, check_errors=False, out=None) -> inverse, info: but 2
linalg.ldl_factor(input, *, hermitian=False, out=None) -> LD, pivots: but 2
linalg.ldl_factor_ex(input, *, hermitian=False, check_errors=False, out=None) -> LD, pivots,
    info: but 2
linalg.ldl_solve(LD, pivots, B, *, hermitian=False, out=None): but 2 1 2
linalg.lu(A, *, pivot=True, out=None) -> P, L, U: but 2
linalg.lu_factor(A, *, pivot=True, out=None) -> LU, pivots: but 2
linalg.lu_factor_ex(A, *, pivot=True, check_errors=False, out=None) -> LU, pivots, info: but 2
linalg.lu_solve(LU, pivots, B, *, left=True, adjoint=False, out=None): but 2 1 2
linalg.lstsq(input, b, rcond=None, *, driver=None) -> solution, residuals, rank,
    singular_values: but 2
linalg.matrix_norm(input, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None, out=None): but dim
linalg.matrix_rank(input, tol=None, *, atol=None, rtol=None, hermitian=False, out=None): but 2
linalg.multi_dot(tensors, *, out=None): none
linalg.norm(input, ord=None, dim=None, keepdim=False, *, dtype=None, out=None): but dim
linalg.pinv(input, rcond=None, *, atol=None, rtol=None, hermitian=False, out=None): but 2
linalg.qr(A, mode="reduced", *, out=None) -> Q, R: but 2
linalg.slogdet(A, *, out=None) -> sign, logabsdet: but 2
linalg.solve(A, B, *, left=True, out=None): solve
linalg.solve_ex(A, B, *, left=True, check_errors=False, out=None) -> result, info: solve
linalg.solve_triangular(input, B, *, upper, left=True, unitriangular=False, out=None): but 2
linalg.svd(A, full_matrices=True, *, driver=None, out=None) -> U, S, Vh: but 2
linalg.svdvals(A, *, driver=None, out=None): but 2
linalg.tensorinv(input, ind=2, *, out=None): none
linalg.tensorsolve(input, other, dims=None, *, out=None): none
linalg.vander(x, *, N=None): but 1
linalg.vecdot(x, y, *, dim=-1, out=None): but dim
linalg.cross(input, other, *, dim=-1, out=None): but dim
"""

FFT = """
fft.fft(input, n=None, dim=-1, norm=None, *, out=None): but dim linear
fft.fft2(input, s=None, dim=(-2, -1), norm=None, *, out=None): but dim linear
fft.fftn(input, s=None, dim=None, norm=None, *, out=None): but dim linear
fft.hfft(input, n=None, dim=-1, norm=None, *, out=None): but dim
fft.hfft2(input, s=None, dim=(-2, -1), norm=None, *, out=None): but dim
fft.hfftn(input, s=None, dim=None, norm=None, *, out=None): but dim
fft.rfft(input, n=None, dim=-1, norm=None, *, out=None): but dim linear
fft.rfft2(input, s=None, dim=(-2, -1), norm=None, *, out=None): but dim linear
fft.rfftn(input, s=None, dim=None, norm=None, *, out=None): but dim linear
fft.ifft(input, n=None, dim=-1, norm=None, *, out=None): but dim linear
fft.ifft2(input, s=None, dim=(-2, -1), norm=None, *, out=None): but dim linear
fft.ifftn(input, s=None, dim=None, norm=None, *, out=None): but dim linear
fft.ihfft(input, n=None, dim=-1, norm=None, *, out=None): but dim
fft.ihfft2(input, s=None, dim=(-2, -1), norm=None, *, out=None): but dim
fft.ihfftn(input, s=None, dim=None, norm=None, *, out=None): but dim
fft.irfft(input, n=None, dim=-1, norm=None, *, out=None): but dim linear
fft.irfft2(input, s=None, dim=(-2, -1), norm=None, *, out=None): but dim linear
fft.irfftn(input, s=None, dim=None, norm=None, *, out=None): but dim linear
fft.fftshift(input, dim=None): but dim linear
fft.ifftshift(input, dim=None): but dim linear
"""

SPECIAL = """
_dirichlet_grad(x, alpha, total): each constant
_standard_gamma_grad(input, output): each constant
i0(input, *, out=None): each
igamma(input, other, *, out=None): each
igammac(input, other, *, out=None): each
mvlgamma(input, p, *, out=None): each
nextafter(input, other, *, out=None): each constant
special.airy_ai(x, *, out=None): each constant
special.bessel_j0(input, *, out=None): each constant
special.bessel_j1(input, *, out=None): each constant
special.bessel_y0(input, *, out=None): each constant
special.bessel_y1(input, *, out=None): each constant
special.chebyshev_polynomial_t(x, n, *, out=None): each constant
special.chebyshev_polynomial_u(x, n, *, out=None): each constant
special.chebyshev_polynomial_v(x, n, *, out=None): each constant
special.chebyshev_polynomial_w(x, n, *, out=None): each constant
special.entr(input, *, out=None): each
special.erfcx(input, *, out=None): each
special.hermite_polynomial_h(x, n, *, out=None): each constant
special.hermite_polynomial_he(x, n, *, out=None): each constant
special.i0e(input, *, out=None): each
special.i1(input, *, out=None): each
special.i1e(input, *, out=None): each
special.laguerre_polynomial_l(x, n, *, out=None): each constant
special.legendre_polynomial_p(x, n, *, out=None): each constant
special.log_ndtr(input, *, out=None): each
special.modified_bessel_i0(input, *, out=None): each constant
special.modified_bessel_i1(input, *, out=None): each constant
special.modified_bessel_k0(input, *, out=None): each constant
special.modified_bessel_k1(input, *, out=None): each constant
special.ndtr(input, *, out=None): each
special.ndtri(input, *, out=None): each
special.polygamma(n, input, *, out=None): each
special.scaled_modified_bessel_k0(x, *, out=None): each constant
special.scaled_modified_bessel_k1(x, *, out=None): each constant
special.shifted_chebyshev_polynomial_t(x, n, *, out=None): each constant
special.shifted_chebyshev_polynomial_u(x, n, *, out=None): each constant
special.shifted_chebyshev_polynomial_v(x, n, *, out=None): each constant
special.shifted_chebyshev_polynomial_w(x, n, *, out=None): each constant
special.spherical_bessel_j0(x, *, out=None): each constant
special.xlog1py(input, other, *, out=None): each
special.zeta(input, other, *, out=None): each
"""

OTHERS = """
as_strided_copy(input, size, stride, storage_offset=None, *, out=None): none
as_strided_scatter(input, src, size, stride, storage_offset=None): none
bucketize(input, boundaries, *, out_int32=False, right=False, out=None): values input constant
combinations(input, r=2, with_replacement=False): none
gradient(input, *, spacing=1, dim=None, edge_order=1) -> *: but dim
histogram(input, bins, *, range=None, weight=None, density=False, out=None) -> hist, bin_edges:
    none constant
istft(input, n_fft, hop_length=None, win_length=None, window=None, center=True,
    normalized=False, onesided=None, length=None, return_complex=False): none
searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None,
    out=None): sorted constant
unravel_index(indices, shape) -> *: each constant
block_diag(*tensors): none
cartesian_prod(*tensors): none
cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"): but 2
complex(real, imag, *, out=None): each
polar(abs, angle, *, out=None): each
cross(input, other, dim=None, *, out=None): but dim
cummax(input, dim, *, out=None) -> values, indices: but dim
cummin(input, dim, *, out=None) -> values, indices: but dim
cumulative_trapezoid(y, x=None, *, dx=None, dim=-1): but dim
diff(input, n=1, dim=-1, prepend=None, append=None, *, out=None): but dim
dist(input, other, p=2): none
fake_quantize_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max): none
fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max): each
hash_tensor(input, dim=None, *, keepdim=False, mode=0, out=None): but dim constant
frexp(input, *, out=None) -> mantissa, exponent: each
gcd(input, other, *, out=None): each constant
lcm(input, other, *, out=None): each constant
histc(input, bins=100, min=0, max=0, *, out=None): none constant
isin(elements, test_elements, *, assume_unique=False, invert=False, out=None): values elements
    constant
isreal(input): each constant
kron(input, other, *, out=None): none
ldexp(input, other, *, out=None): each
logcumsumexp(input, dim, *, out=None): but dim
mode(input, dim=-1, keepdim=False, *, out=None) -> values, indices: but dim
nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear", out=None): quantile
quantile(input, q, dim=None, keepdim=False, *, interpolation="linear", out=None): quantile
nonzero_static(input, *, size, fill_value=-1, out=None): none constant
renorm(input, p, dim, maxnorm, *, out=None): none
stft(input, n_fft, hop_length=None, win_length=None, window=None, center=True,
    pad_mode="reflect", normalized=False, onesided=None, return_complex=None, align_to_window=None):
    signal
trapezoid(y, x=None, *, dx=None, dim=-1): but dim
trapz(y, x=None, *, dx=None, dim=-1): but dim
trace(input): none linear
view_as_complex(input): but 1 linear view
view_as_real(input): each linear view
"""

LAYERS = """
native_group_norm(input, weight, bias, N, C, HxW, group, eps) -> out, mean, rstd: none
native_layer_norm(input, normalized_shape, weight, bias, eps) -> out, mean, rstd: none
affine_grid(theta, size, align_corners=None): none
bilinear(input1, input2, weight, bias=None): bilinear
channel_shuffle(input, groups): lead 1 linear
native_channel_shuffle(input, groups): lead 1 linear
conv_tbc(input, weight, bias, pad=0): none
ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean",
    zero_infinity=False): none
embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False,
    mode="mean", sparse=False, per_sample_weights=None, include_last_offset=False,
    padding_idx=None): none
_embedding_bag(weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx=None) -> output, offset2bag,
    bag_size, max_indices: none
fractional_max_pool2d_with_indices(input, kernel_size, output_size=None, output_ratio=None,
    return_indices=False, _random_samples=None) -> output, indices: but 2 1
fractional_max_pool3d_with_indices(input, kernel_size, output_size=None, output_ratio=None,
    return_indices=False, _random_samples=None) -> output, indices: but 3 1
grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None): lead 1
grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners): lead 1
grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners): lead 1
grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners): lead 1
local_response_norm(input, size, alpha=0.0001, beta=0.75, k=1.0): lead 1
pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False): but 1
pdist(input, p=2.0): none
"""

LOSSES = """
cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None,
    reduction="mean"): but 1 1 0 reduced
hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None,
    reduction="mean"): each reduced
margin_ranking_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None,
    reduction="mean"): each reduced
multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None,
    reduction="mean"): but 1 0 1 reduced
multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"): but 1
    reduced
multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None,
    reduction="mean"): but 1 reduced
poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8,
    reduce=None, reduction="mean"): each reduced
soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"): each reduced
triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False,
    size_average=None, reduce=None, reduction="mean"): but 1 reduced
"""

VECTORS = """
bartlett_window(window_length, periodic=True): vector
blackman_window(window_length, periodic=True): vector
fft.fftfreq(n, d=1.0, *, out=None): vector
fft.rfftfreq(n, d=1.0, *, out=None): vector
hamming_window(window_length, periodic=True, alpha=0.54, beta=0.46): vector
kaiser_window(window_length, periodic=True, beta=12.0): vector
signal.windows.bartlett(M, *, sym=True): vector
signal.windows.blackman(M, *, sym=True): vector
signal.windows.cosine(M, *, sym=True): vector
signal.windows.exponential(M, *, center=None, tau=1.0, sym=True): vector
signal.windows.gaussian(M, *, std=1.0, sym=True): vector
signal.windows.general_cosine(M, *, a, sym=True): vector
signal.windows.general_hamming(M, *, alpha=0.54, sym=True): vector
signal.windows.hamming(M, *, sym=True): vector
signal.windows.hann(M, *, sym=True): vector
signal.windows.kaiser(M, *, beta=12.0, sym=True): vector
signal.windows.nuttall(M, *, sym=True): vector
"""
