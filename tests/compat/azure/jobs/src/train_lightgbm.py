import argparse

import lightgbm as lgb
import mlflow
import pandas as pd
from sklearn.preprocessing import LabelEncoder

parser = argparse.ArgumentParser()
parser.add_argument("--iris-csv")
mlflow.autolog()
table = pd.read_csv(parser.parse_args().iris_csv)
data = lgb.Dataset(table.drop(columns=["species"]), LabelEncoder().fit_transform(table["species"]))
params = {"objective": "multiclass", "num_class": 3, "metric": "multi_logloss", "verbose": -1}
lgb.train(params, data, 5, valid_sets=[data], valid_names=["train"])
