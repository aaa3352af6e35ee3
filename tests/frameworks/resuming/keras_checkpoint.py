import os

import keras
import numpy
import pace

file, begun = "best/model.keras", 0
os.makedirs("best", exist_ok=True)
if os.path.exists(file):
    model = keras.models.load_model(file)
    begun = int(model.optimizer.iterations) // 2
else:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")


class Steps(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        pace.step(epoch + 1, begun)


x = numpy.ones((4, 2))
callbacks = [keras.callbacks.ModelCheckpoint(file), Steps()]
model.fit(x, x[:, :1], batch_size=2, epochs=5, initial_epoch=begun, verbose=0, callbacks=callbacks)
