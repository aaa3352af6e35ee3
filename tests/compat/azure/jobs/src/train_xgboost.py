import argparse

import mlflow
import pandas as pd
import xgboost as xgb
from sklearn.preprocessing import LabelEncoder

parser = argparse.ArgumentParser()
parser.add_argument("--iris-csv")
mlflow.xgboost.autolog()
table = pd.read_csv(parser.parse_args().iris_csv)
label = LabelEncoder().fit_transform(table["species"])
data = xgb.DMatrix(table.drop(columns=["species"]), label=label)
xgb.train({"objective": "multi:softprob", "num_class": 3}, data, 5, evals=[(data, "train")])
