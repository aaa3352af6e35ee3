"""The transformers Trainer on a tiny GPT-2 made from a configuration: nothing is downloaded."""

import json

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Counting(torch.utils.data.Dataset):
    """Sequences that count up, from different numbers: easy to learn."""

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(16) + index) % 32
        return {"input_ids": tokens, "labels": tokens}


config = GPT2Config(
    vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
)
arguments = TrainingArguments(
    output_dir="outputs/model",
    use_cpu=True,
    ddp_backend="gloo",
    per_device_train_batch_size=8,
    num_train_epochs=4,
    learning_rate=0.01,
    logging_steps=4,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    seed=5,
)
trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Counting())
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print(
    f"rank {arguments.process_index} of {arguments.world_size} "
    f"trained {trainer.state.global_step} steps"
)
if trainer.is_world_process_zero():
    trainer.save_model()
    result = {"ranks": arguments.world_size, "first": float(losses[0]), "last": float(losses[-1])}
    result["steps"] = trainer.state.global_step
    with open("outputs/result.json", "w") as file:
        json.dump(result, file)
