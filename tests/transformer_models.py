"""Small transformers with the names of the usual ones, for tests of layouts."""

import onefold as flow
from onefold import nn

F = nn.functional


class LlamaAttention(nn.Module):
    """Projections apart, without biases."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (
            layer(x).view(n, t, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(n, t, width))


class LlamaBlock(nn.Module):
    """Attention and a gated feed-forward part."""

    def __init__(self, width, heads):
        super().__init__()
        self.input_norm = nn.RMSNorm(width)
        self.attn = LlamaAttention(width, heads)
        self.post_norm = nn.RMSNorm(width)
        self.gate_proj = nn.Linear(width, 2 * width, bias=False)
        self.up_proj = nn.Linear(width, 2 * width, bias=False)
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        x = x + self.attn(self.input_norm(x))
        h = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class GPTBlock(nn.Module):
    """One projection to queries, keys and values, and biases."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(width, 2 * width), "c_proj": nn.Linear(2 * width, width)}
        )

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (
            part.view(n, t, self.heads, width // self.heads).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(n, t, width))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class EncoderBlock(nn.TransformerEncoderLayer):
    """The layer of this package."""

    def __init__(self, width, heads):
        super().__init__(width, heads, 2 * width, dropout=0.0, batch_first=True)


class LanguageModel(nn.Module):
    """Token embeddings, two blocks, a norm and the logits of the next token."""

    def __init__(self, block, vocabulary=10, width=8, heads=4):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([block(width, heads) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))


def loss_of(model, tokens, targets):
    """The mean loss of the model's next tokens."""
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def language_model(block):
    """A model with always the same weights, and tokens and targets as numpy arrays."""
    flow.manual_seed(3)
    model = LanguageModel(block).double()
    numbers = flow.randint(0, 10, (2, 4, 6)).numpy()
    return model, numbers[0], numbers[1]


def losses_and_gradients(model, tokens, targets, make, steps=2):
    """Two steps of SGD: their losses, and every gradient of the last as an array."""
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, make(tokens), make(targets))
        loss.backward()
        losses.append(loss.item())
        grads = {name: param.grad.numpy() for name, param in model.named_parameters()}
        optimizer.step()
    return losses, grads
