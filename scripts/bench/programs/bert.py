"""A small BERT from its configuration alone, under transformers' Trainer."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)


class Rows(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        words = torch.randint(5, 5000, (64,), generator=draw)
        mask = torch.ones(64, dtype=torch.long)
        return {"input_ids": words, "attention_mask": mask, "labels": int(words.sum()) % 2}


config = BertConfig(
    vocab_size=5000,
    hidden_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=512,
)
arguments = TrainingArguments(
    tempfile.mkdtemp(),
    per_device_train_batch_size=16,
    max_steps=1_000_000,
    logging_steps=50,
    report_to=[],
    save_strategy="no",
    use_cpu=True,
)
Trainer(BertForSequenceClassification(config), arguments, train_dataset=Rows()).train()
