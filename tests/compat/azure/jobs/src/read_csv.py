import argparse

import pandas as pd

parser = argparse.ArgumentParser()
parser.add_argument("--iris-csv")
print(pd.read_csv(parser.parse_args().iris_csv).head())
