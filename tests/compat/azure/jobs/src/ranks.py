import os

print({name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")})
assert os.environ["AZ_BATCH_MASTER_NODE"]
assert os.environ["AZUREML_RUN_ID"]
