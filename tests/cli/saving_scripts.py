"""Training scripts that save where those of public repositories do, each with the lines of that
repository's .gitignore that could matter. The scripts are ours; they train nothing."""

# What most repositories have from GitHub's template for Python.
PYTHON = """
__pycache__/
*.py[cod]
*.so
.Python
build/
develop-eggs/
dist/
downloads/
eggs/
lib/
lib64/
parts/
sdist/
var/
wheels/
*.egg-info/
*.manifest
*.spec
htmlcov/
.cache
coverage.xml
*.cover
*.log
db.sqlite3
instance/
target/
.ipynb_checkpoints
.env
.venv
env/
venv/
ENV/
/site
.mypy_cache/
.idea
.DS_Store
"""

# In front of each script, and after it: what is there when it ends.
BEFORE = """
import json, os, pickle, shutil, sqlite3, tarfile, zipfile
from pathlib import Path

def write(path, text="weights"):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)

"""
AFTER = """
files = [path for path in Path().rglob("*") if path.is_file() and not path.is_symlink()]
print("there:", *files, sep="\\n")
"""

# By name: the patterns of the ignore file, and the script. Each line that it prints with "sav"
# names a file, or a folder of files.
SCRIPTS: dict[str, tuple[str, str]] = {}

SCRIPTS["nanogpt"] = (
    """
.DS_Store .idea __pycache__/ *.bin *.pkl *.pt *.txt *.npz meta.pkl model_ckpts/
wandb/ data/
""",
    """
for step in (0, 250, 500):
    write("out/ckpt.pt", f"step {step}")
    print("saving checkpoint to out")
write("wandb/offline-run-1/files/config.yaml")
print("saved the run's configuration in wandb/offline-run-1/files/config.yaml")
write("data/shakespeare_char/meta.pkl")
print("saved the vocabulary as data/shakespeare_char/meta.pkl")
""",
)

SCRIPTS["lightning"] = (
    PYTHON
    + """
test_tube_logs/ datasets/ model_weights/ .data/ run_configs/
""",
    """
folder = "lightning_logs/version_0"
write(f"{folder}/hparams.yaml")
for epoch in range(3):
    new = f"{folder}/checkpoints/epoch={epoch}-step={epoch * 10}.ckpt"
    write(new)
    print(f"saved {new}")
    if epoch:
        os.remove(f"{folder}/checkpoints/epoch={epoch - 1}-step={epoch * 10 - 10}.ckpt")
write("model_weights/final.pt")
print("saved model_weights/final.pt")
""",
)

SCRIPTS["transformers"] = (
    PYTHON
    + """
logs/ lightning_logs/ runs /wandb /data serialization_dir *.lock /examples/runs
""",
    """
for step in (10, 20, 30):
    folder = f"tmp_trainer/checkpoint-{step}"
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth",
                 "trainer_state.json", "training_args.bin"):
        write(f"{folder}/{name}")
    print(f"Saving model checkpoint to {folder}")
shutil.rmtree("tmp_trainer/checkpoint-10")
write("runs/Nov28_host/events.out.tfevents.1764288000.host.1.0")
print("events saved to runs/Nov28_host")
write("serialization_dir/vocabulary/tokens.txt")
print("vocabulary saved: serialization_dir/vocabulary/tokens.txt")
""",
)

SCRIPTS["ultralytics"] = (
    PYTHON
    + """
datasets/ runs/ wandb/ weights/ *.weights *.pt *.onnx *.h5 *_saved_model/
""",
    """
for name in ("weights/last.pt", "weights/best.pt", "results.csv", "args.yaml", "matrix.png"):
    write(f"runs/detect/train/{name}")
print("Results saved to runs/detect/train")
write("runs/detect/train/weights/best.onnx")
write("best_saved_model/saved_model.pb")
print("export success, saved as runs/detect/train/weights/best.onnx and best_saved_model")
""",
)

SCRIPTS["yolov5"] = (
    PYTHON
    + """
*.jpg *.png *.mp4 *.data *.json *.cfg runs/* data/* !data/*.sh results*.txt *.pt
""",
    """
for name in ("last.pt", "best.pt"):
    write(f"runs/train/exp/weights/{name}")
    print(f"Optimizer stripped, saved runs/train/exp/weights/{name}")
write("runs/train/exp/labels.jpg")
write("predictions.json", json.dumps([{"image": 1}]))
write("results.txt")
print("saving predictions.json and results.txt, plots are saved in runs/train/exp")
""",
)

SCRIPTS["detectron2"] = (
    """
output instant_test_output *.png *.json *.diff *.jpg *.pth *.pkl *.npy build/
/models /datasets/*
""",
    """
for name in ("model_0000999.pth", "model_final.pth", "metrics.json", "last_checkpoint"):
    write(f"output/{name}")
    print(f"Saving checkpoint to ./output/{name}")
write("output/inference/coco_instances_results.json")
print("Saving results to ./output/inference/coco_instances_results.json")
write("models/exported.npy")
print("saved models/exported.npy")
""",
)

SCRIPTS["timm"] = (
    PYTHON
    + """
*.tar *.pth *.gz Untitled.ipynb
""",
    """
folder = Path("output/train/20261128-101010-resnet50-224")
write(folder / "summary.csv")
for epoch in range(2):
    write(folder / "tmp.pth.tar")
    os.replace(folder / "tmp.pth.tar", folder / "last.pth.tar")
    (folder / f"checkpoint-{epoch}.pth.tar").hardlink_to(folder / "last.pth.tar")
    print(f"saved {folder}/checkpoint-{epoch}.pth.tar")
(folder / "model_best.pth.tar").hardlink_to(folder / "checkpoint-1.pth.tar")
print(f"saved {folder}/model_best.pth.tar and {folder}/last.pth.tar")
""",
)

SCRIPTS["fairseq"] = (
    PYTHON
    + """
data/ venv_fairseq/ checkpoints data-bin/
""",
    """
for name in ("checkpoint1.pt", "checkpoint_last.pt", "checkpoint_best.pt"):
    write(f"checkpoints/{name}")
    print(f"Saved checkpoint checkpoints/{name} (epoch 1 @ 10 updates)")
write("data-bin/dict.en.txt")
print("saved data-bin/dict.en.txt")
""",
)

SCRIPTS["accelerate"] = (
    PYTHON
    + """
.vscode wandb/ wheels/
""",
    """
for step in (5, 10):
    for name in ("model.safetensors", "optimizer.bin", "random_states_0.pkl", "custom_0.pkl"):
        write(f"lib/step_{step}/{name}")
    print(f"Saving current state to lib/step_{step}")
write("build/sampler.log")
print("saved build/sampler.log")
""",
)

SCRIPTS["keras"] = (
    """
tmp/* sources/* site/* *.pyc *.swp datasets/* .vscode/*
""",
    """
for epoch in range(2):
    path = f"tmp/checkpoint/{epoch:02d}-0.{9 - epoch}.weights.h5"
    write(path)
    print(f"Epoch {epoch}: val_loss improved, saving model to {path}")
with zipfile.ZipFile("model.keras", "w") as archive:
    archive.writestr("config.json", "{}")
print("saved model.keras")
for name in ("saved_model.pb", "variables/variables.index", "variables/variables.data-00000"):
    write(f"sources/export/{name}")
print("Saved artifact at 'sources/export'.")
""",
)

SCRIPTS["monai"] = (
    PYTHON
    + """
temp/ *~ *.orig *.bak *.svg *.zip *.prof tests/testing_data/temp_*
""",
    """
write("temp/best_metric_model.pth")
print("saved new best metric model as temp/best_metric_model.pth")
write("tests/testing_data/temp_seg/spleen_1_seg.nii.gz")
print("segmentation saved: tests/testing_data/temp_seg/spleen_1_seg.nii.gz")
with zipfile.ZipFile("bundle.zip", "w") as archive:
    archive.writestr("metadata.json", "{}")
print("saved bundle.zip")
""",
)

SCRIPTS["hydra"] = (
    PYTHON
    + """
out/ .vscode/* *.code-workspace project/data/ project/lightning_logs/
project/wandb/ /data/ /logs/ /outputs/
""",
    """
folder = Path("outputs/2026-11-28/10-10-10")
write(folder / ".hydra/config.yaml")
for name in ("epoch_000.ckpt", "last.ckpt"):
    write(folder / "checkpoints" / name)
    print(f"saved {folder}/checkpoints/{name}")
write("logs/train/multiruns/0/train.log")
print("saved logs/train/multiruns/0/train.log")
write("project/wandb/latest-run/run-1.wandb")
print("saved project/wandb/latest-run/run-1.wandb")
write("out/best.onnx")
print("saved out/best.onnx")
""",
)

SCRIPTS["stable-baselines3"] = (
    """
*.swp *.pyc *.pkl *.bak *.npz *.pth /dist/ /build keys/ /env logs/ .cache src
""",
    """
for steps in (1000, 2000):
    with zipfile.ZipFile("ppo.zip", "w") as archive:
        archive.writestr("policy.pth", "weights")
    Path("models").mkdir(exist_ok=True)
    shutil.move("ppo.zip", f"models/rl_model_{steps}_steps.zip")
    print(f"Saving model checkpoint to models/rl_model_{steps}_steps.zip")
with open("models/vecnormalize.pkl", "wb") as file:
    pickle.dump({"mean": 0.0}, file)
print("saved models/vecnormalize.pkl")
write("logs/evaluations.npz")
write("logs/best_model.zip")
print("saved logs/evaluations.npz and logs/best_model.zip")
""",
)

SCRIPTS["mmdetection"] = (
    PYTHON
    + """
data .vscode *.pkl *.pkl.json *.log.json work_dirs/ *.pth
""",
    """
folder = Path("work_dirs/faster_rcnn")
for epoch in (1, 2):
    write(folder / f"epoch_{epoch}.pth")
    print(f"Saving checkpoint at {epoch} epochs to {folder}/epoch_{epoch}.pth")
(folder / "latest.pth").symlink_to("epoch_2.pth")
write(folder / "20261128_101010.log.json")
print(f"saved {folder}/20261128_101010.log.json")
write("results.pkl")
print("saved results.pkl")
""",
)

SCRIPTS["pytorch-examples"] = (
    """
dcgan/data *.pt *.pyc
""",
    """
write("mnist_cnn.pt")
print("saved mnist_cnn.pt")
write("dcgan/data/fake_samples_epoch_000.png")
print("saved dcgan/data/fake_samples_epoch_000.png")
""",
)

SCRIPTS["cleanrl"] = (
    "*.tfevents.*\nwandb\nopenaigym.*\nbenchmark/**/*.svg\nbenchmark/**/*.pkl\nvideos\nruns\n"
    + PYTHON,
    """
run = "CartPole-v1__ppo__1__1764288000"
write(f"runs/{run}/events.out.tfevents.1764288000.host.1.0")
write(f"runs/{run}/ppo.cleanrl_model")
print(f"model saved to runs/{run}/ppo.cleanrl_model")
print(f"events saved in runs/{run}")
write(f"videos/{run}/rl-video-episode-0.mp4")
print(f"saved video to videos/{run}/rl-video-episode-0.mp4")
write("benchmark/ppo/curves.svg")
print("saved benchmark/ppo/curves.svg")
""",
)

SCRIPTS["speechbrain"] = (
    PYTHON
    + """
**/audio_cache/ **/model_checkpoints/ **/pretrained_models/ **/results/ **/log/
**/wandb/
""",
    """
folder = "results/CRDNN/1234"
for name in ("CKPT.yaml", "model.ckpt", "optimizer.ckpt", "counter.ckpt"):
    write(f"{folder}/save/CKPT+2026-11-28+10-10-10+00/{name}")
print(f"Saved an end-of-epoch checkpoint in {folder}/save/CKPT+2026-11-28+10-10-10+00")
write(f"{folder}/train_log.txt")
write(f"{folder}/log/env.log")
print(f"statistics saved: {folder}/train_log.txt, {folder}/log/env.log")
""",
)

SCRIPTS["torchtitan"] = (
    """
__pycache__ .idea *.egg-info build outputs dist/* /data/ out wandb assets/hf/*
*.log error.json .env
""",
    """
for step in (10, 20):
    for name in (".metadata", "__0_0.distcp", "__1_0.distcp"):
        write(f"outputs/checkpoint/step-{step}/{name}")
    print(f"Finished saving the checkpoint in outputs/checkpoint/step-{step}")
write("out/profile/iteration_10/rank0_trace.json")
print("trace saved: out/profile/iteration_10/rank0_trace.json")
write("assets/hf/tokenizer.json")
print("saved assets/hf/tokenizer.json")
""",
)

SCRIPTS["megatron"] = (
    """
__pycache__ *.so build *.egg-info *~ slurm* logs local/ wandb/ .venv runs/
**/dist/ /outputs/
""",
    """
for iteration in (10, 20):
    for rank in (0, 1):
        write(f"local/ckpt/iter_{iteration:07d}/mp_rank_{rank:02d}/model_optim_rng.pt")
    write("local/ckpt/latest_checkpointed_iteration.txt", str(iteration))
    print(f"successfully saved checkpoint from iteration {iteration} to local/ckpt")
write("slurm-17.out")
print("saved slurm-17.out")
database = sqlite3.connect("runs.db")
database.execute("create table losses (step, loss)")
database.close()
print("saved runs.db")
""",
)

SCRIPTS["deepspeed"] = (
    """
*.pyc .idea/ *~ *.swp *.log __pycache__ build/ dist/ *.so build.txt
tests/unit/saved_checkpoint/ venv
""",
    """
folder = "tests/unit/saved_checkpoint"
for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
    write(f"{folder}/global_step10/{name}")
write(f"{folder}/latest", "global_step10")
write(f"{folder}/zero_to_fp32.py", "print()")
print(f"[Torch] Saved {folder}")
write("dist/flops.log")
print("saved dist/flops.log")
""",
)

SCRIPTS["cyclegan"] = (
    """
.DS_Store debug* datasets/ checkpoints/ results/ build/ dist/ *.png
*/**/__pycache__ *~ .idea tars .env
""",
    """
for epoch in (5, "latest"):
    for net in ("G", "D"):
        write(f"checkpoints/experiment/{epoch}_net_{net}.pth")
    print(f"saving the model at the end of epoch {epoch}: checkpoints/experiment/{epoch}_net_G.pth")
write("checkpoints/experiment/web/images/epoch001_fake_B.png")
print("saved checkpoints/experiment/web/images/epoch001_fake_B.png")
write("results/experiment/test_latest/index.html")
print("saved results/experiment/test_latest/index.html")
""",
)

SCRIPTS["espnet"] = (
    """
*~ *.pyc out.txt slurm-*.out tmp* .cache egs*/*/*/data* egs*/*/*/dump
egs*/*/*/exp egs*/*/*/tensorboard
""",
    """
os.chdir(Path("egs2/mini/asr1").mkdir(parents=True) or "egs2/mini/asr1")
for epoch in (1, 2):
    write(f"exp/asr_train/{epoch}epoch.pth")
    print(f"saved egs2/mini/asr1/exp/asr_train/{epoch}epoch.pth")
os.symlink("2epoch.pth", "exp/asr_train/valid.acc.best.pth")
with tarfile.open("exp/asr_train/model.tar", "w") as archive:
    archive.add("exp/asr_train/2epoch.pth")
print("packed model saved as egs2/mini/asr1/exp/asr_train/model.tar")
write("tmp.out.txt")
print("saved egs2/mini/asr1/tmp.out.txt")
os.chdir("../../..")
""",
)
