"""A transformers model and a datasets.Dataset passed to fit as they are: made-up reviews, 30 % under the wrong label.

Run it: pip install transformers datasets && python examples/hugging_face_model.py
"""

import datasets
import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithPadding, PreTrainedTokenizerFast

import mslg

random = np.random.default_rng(0)
GOOD, BAD = ["great", "lovely", "superb", "fine"], ["awful", "dull", "poor", "bad"]
REST = ["the", "a", "film", "plot", "cast", "was", "and", "so"]
true = np.arange(700) % 2
picked = [[*random.choice((BAD, GOOD)[kind], 2), *random.choice(REST, 4 + n % 5)] for n, kind in enumerate(true)]
texts = [" ".join(random.permutation(words)) for words in picked]
given = np.where(random.random(700) < 0.3, 1 - true, true)

words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *GOOD, *BAD, *REST])}
plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]")  # or AutoTokenizer.from_pretrained(…)


def rows(part: slice, labels: np.ndarray) -> datasets.Dataset:
    return datasets.Dataset.from_dict({**tokenizer(texts[part]), "labels": labels[part]})


def network() -> BertForSequenceClassification:  # or AutoModelForSequenceClassification.from_pretrained(…)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    return BertForSequenceClassification(BertConfig(**size, vocab_size=len(words), num_labels=2))


pad = {"collate_fn": DataCollatorWithPadding(tokenizer)}  # the reviews have different lengths
train, clean, test = rows(slice(500), given), rows(slice(500, 550), true), rows(slice(550, 700), true)
how = {"method": "mslg", "epochs": 30, "optimizer": "adamw", "learning_rate": 0.01, "gradient_clip": 1.0}
result = mslg.fit(network, train, clean, loader=pad, classes=["bad", "good"], **how)
names = np.array(["bad", "good"])
print(f"test accuracy {(result.predict(test) == names[true[550:]]).mean():.1%}")
print(f"labels right: suggested {(result.labels['suggested_label'] == names[true[:500]]).mean():.1%}")
