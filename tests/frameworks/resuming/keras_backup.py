import keras
import numpy
import pace

model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
begun = []


class Steps(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        begun.append(epoch)
        if epoch > begun[0]:
            pace.step(epoch, begun[0])


backup = keras.callbacks.BackupAndRestore("backup", delete_checkpoint=False)
x = numpy.ones((4, 2))
model.fit(x, x[:, :1], epochs=6, verbose=0, callbacks=[backup, Steps()])
