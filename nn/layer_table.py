"""The layers without parameters that call one function, a row for each.

A row is `Class(inputs): function(arguments)`. The class has the constructor, the settings and the
text of torch's class of that name. Arguments are inputs, settings by their names, and
`name=setting` where the function's name of an argument differs or must be said.
"""

ACTIVATIONS = """
CELU(input): celu(input, alpha)
ELU(input): elu(input, alpha)
GELU(input): gelu(input, approximate)
GLU(input): glu(input, dim)
Hardshrink(input): hardshrink(input, lambd)
Hardsigmoid(input): hardsigmoid(input)
Hardswish(input): hardswish(input)
Hardtanh(input): hardtanh(input, min_val, max_val)
LeakyReLU(input): leaky_relu(input, negative_slope)
LogSigmoid(input): logsigmoid(input)
LogSoftmax(input): log_softmax(input, self._softmax_dim(input))
Mish(input): mish(input)
ReLU6(input): relu6(input)
ReLU(input): relu(input)
RReLU(input): rrelu(input, lower, upper, training)
SELU(input): selu(input)
SiLU(input): silu(input)
Sigmoid(input): sigmoid(input)
Softmax(input): softmax(input, self._softmax_dim(input))
Softmax2d(input): softmax(input, self._channel_dim(input))
Softmin(input): softmin(input, self._softmax_dim(input))
Softplus(input): softplus(input, beta, threshold)
Softshrink(input): softshrink(input, lambd)
Softsign(input): softsign(input)
Tanh(input): tanh(input)
Tanhshrink(input): tanhshrink(input)
Threshold(input): threshold(input, threshold, value)
"""

POOLING = """
AdaptiveAvgPool1d(input): adaptive_avg_pool1d(input, output_size)
AdaptiveAvgPool2d(input): adaptive_avg_pool2d(input, output_size)
AdaptiveAvgPool3d(input): adaptive_avg_pool3d(input, output_size)
AdaptiveMaxPool1d(input): adaptive_max_pool1d(input, output_size, return_indices)
AdaptiveMaxPool2d(input): adaptive_max_pool2d(input, output_size, return_indices)
AdaptiveMaxPool3d(input): adaptive_max_pool3d(input, output_size, return_indices)
AvgPool1d(input): avg_pool1d(input, kernel_size, stride, padding, ceil_mode, count_include_pad)
AvgPool3d(input): avg_pool3d(input, kernel_size, stride, padding, ceil_mode, count_include_pad,
    divisor_override)
FractionalMaxPool2d(input): fractional_max_pool2d(input, kernel_size, output_size, output_ratio,
    return_indices, _random_samples)
FractionalMaxPool3d(input): fractional_max_pool3d(input, kernel_size, output_size, output_ratio,
    return_indices, _random_samples)
LPPool1d(input): lp_pool1d(input, norm_type, kernel_size, stride, ceil_mode)
LPPool2d(input): lp_pool2d(input, norm_type, kernel_size, stride, ceil_mode)
LPPool3d(input): lp_pool3d(input, norm_type, kernel_size, stride, ceil_mode)
MaxPool1d(input): max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode,
    return_indices)
MaxPool3d(input): max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode,
    return_indices)
MaxUnpool1d(input, indices, output_size=None): max_unpool1d(input, indices, kernel_size, stride,
    padding, output_size=output_size)
MaxUnpool2d(input, indices, output_size=None): max_unpool2d(input, indices, kernel_size, stride,
    padding, output_size=output_size)
MaxUnpool3d(input, indices, output_size=None): max_unpool3d(input, indices, kernel_size, stride,
    padding, output_size=output_size)
"""

SHAPES = """
CircularPad1d(input): pad(input, padding, "circular")
CircularPad2d(input): pad(input, padding, "circular")
CircularPad3d(input): pad(input, padding, "circular")
ConstantPad1d(input): pad(input, padding, "constant", value)
ConstantPad2d(input): pad(input, padding, "constant", value)
ConstantPad3d(input): pad(input, padding, "constant", value)
ReflectionPad1d(input): pad(input, padding, "reflect")
ReflectionPad2d(input): pad(input, padding, "reflect")
ReflectionPad3d(input): pad(input, padding, "reflect")
ReplicationPad1d(input): pad(input, padding, "replicate")
ReplicationPad2d(input): pad(input, padding, "replicate")
ReplicationPad3d(input): pad(input, padding, "replicate")
ZeroPad1d(input): pad(input, padding, "constant", value)
ZeroPad2d(input): pad(input, padding, "constant", value)
ZeroPad3d(input): pad(input, padding, "constant", value)
ChannelShuffle(input): channel_shuffle(input, groups)
Fold(input): fold(input, output_size, kernel_size, dilation, padding, stride)
PixelShuffle(input): pixel_shuffle(input, upscale_factor)
PixelUnshuffle(input): pixel_unshuffle(input, downscale_factor)
Unflatten(input): unflatten(input, dim, unflattened_size)
Unfold(input): im2col(input, kernel_size, dilation, padding, stride)
Upsample(input): interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor)
UpsamplingBilinear2d(input): interpolate(input, size, scale_factor, mode, align_corners)
UpsamplingNearest2d(input): interpolate(input, size, scale_factor, mode)
"""

OTHERS = """
AlphaDropout(input): alpha_dropout(input, p, training)
Dropout(input): dropout(input, p, training)
Dropout1d(input): dropout1d(input, p, training)
Dropout2d(input): dropout2d(input, p, training)
Dropout3d(input): dropout3d(input, p, training)
FeatureAlphaDropout(input): feature_alpha_dropout(input, p, training)
CosineSimilarity(x1, x2): cosine_similarity(x1, x2, dim, eps)
LocalResponseNorm(input): local_response_norm(input, size, alpha, beta, k)
PairwiseDistance(x1, x2): pairwise_distance(x1, x2, norm, eps, keepdim)
"""

LOSSES = """
BCELoss(input, target): binary_cross_entropy(input, target, weight, reduction=reduction)
BCEWithLogitsLoss(input, target): binary_cross_entropy_with_logits(input, target, weight,
    reduction=reduction, pos_weight=pos_weight)
CTCLoss(log_probs, targets, input_lengths, target_lengths): ctc_loss(log_probs, targets,
    input_lengths, target_lengths, blank, reduction, zero_infinity)
CosineEmbeddingLoss(input1, input2, target): cosine_embedding_loss(input1, input2, target, margin,
    reduction=reduction)
GaussianNLLLoss(input, target, var): gaussian_nll_loss(input, target, var, full, eps, reduction)
HingeEmbeddingLoss(input, target): hinge_embedding_loss(input, target, margin, reduction=reduction)
HuberLoss(input, target): huber_loss(input, target, reduction=reduction, delta=delta)
KLDivLoss(input, target): kl_div(input, target, reduction=reduction, log_target=log_target)
L1Loss(input, target): l1_loss(input, target, reduction=reduction)
MarginRankingLoss(input1, input2, target): margin_ranking_loss(input1, input2, target, margin,
    reduction=reduction)
MultiLabelMarginLoss(input, target): multilabel_margin_loss(input, target, reduction=reduction)
MultiLabelSoftMarginLoss(input, target): multilabel_soft_margin_loss(input, target, weight,
    reduction=reduction)
MultiMarginLoss(input, target): multi_margin_loss(input, target, p, margin, weight,
    reduction=reduction)
PoissonNLLLoss(log_input, target): poisson_nll_loss(log_input, target, log_input=self.log_input,
    full=full, eps=eps, reduction=reduction)
SmoothL1Loss(input, target): smooth_l1_loss(input, target, reduction=reduction, beta=beta)
SoftMarginLoss(input, target): soft_margin_loss(input, target, reduction=reduction)
TripletMarginLoss(anchor, positive, negative): triplet_margin_loss(anchor, positive, negative,
    margin, p, eps, swap, reduction=reduction)
TripletMarginWithDistanceLoss(anchor, positive, negative): triplet_margin_with_distance_loss(anchor,
    positive, negative, distance_function=distance_function, margin=margin, swap=swap,
    reduction=reduction)
"""
