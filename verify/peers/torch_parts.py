# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch peers share: heads and reduction as training code usually has them, without guards."""
from needs import need

torch = need("torch")
fljsd = need("fljsd", "fljsd (pip install ./verify/python)")

# bf16 models, as published: no idea of a padded vocabulary, and other formats would be other programs.
LACKS = ["valid_vocab", "f16", "f32", "f64"]


def log_probabilities(activations, weight, bias, temperature):
    """Logits, their division by the temperature and the log-softmax, each stored in the format of the input."""
    logits = torch.nn.functional.linear(activations, weight, bias)
    return torch.log_softmax(logits / temperature, dim=-1)


def kl(log_a, log_b):
    """KL(a || b) per token."""
    return torch.nn.functional.kl_div(log_b, log_a, reduction="none", log_target=True).sum(dim=-1)


def reduce(token_loss, counted, reduction):
    """The losses with those of ignored tokens set to 0, and their mean or sum: 0/0 where nothing counts."""
    token_loss = torch.where(counted, token_loss, 0.0)
    total = token_loss.sum()
    return token_loss, total / counted.sum() if reduction == "batchmean" else total


def serve(pipeline):
    """Serves pipeline(t) -> token_loss, loss with the gradients of backward()."""

    def candidate(case):
        t = case.torch()
        token_loss, loss = pipeline(t)
        return t.answer(loss=loss, token_loss=token_loss)

    fljsd.serve(candidate, lacks=LACKS, accuracy_class="bf16-logits")
