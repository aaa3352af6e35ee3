import argparse
import random

import mlflow

parser = argparse.ArgumentParser()
parser.add_argument("--A", type=float)
parser.add_argument("--B", type=str)
parser.add_argument("--C", type=float)
print(parser.parse_args())
for step in range(3):
    mlflow.log_metric("random_metric", random.uniform(0, 1), step=step)
