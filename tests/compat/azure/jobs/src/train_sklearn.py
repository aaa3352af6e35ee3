import argparse

import mlflow
import mlflow.sklearn
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--C", type=float)
args = parser.parse_args()
mlflow.autolog()
table = pd.read_csv(args.data)
x_train, x_test, y_train, y_test = train_test_split(
    table.drop(columns=["species"]), table["species"], random_state=1
)
model = SVC(C=args.C).fit(x_train, y_train)
mlflow.log_metric("accuracy", model.score(x_test, y_test))
mlflow.sklearn.save_model(model, "outputs/model")
