"""Training networks: everything that needs torch.

run.py            train a recipe on a corpus and score it on held-out papers: begin here
config.py         recipes, which decide everything that is learned
data.py           the corpus: trees, papers, works, citations; its file
text.py           words and names around equations, and the tables that losses compare with
related.py        other notations and equations with a common name, as more pairs to learn from
sampling.py       which equations are drawn as anchor, partner and negative
batches.py        trees on the device, batches of them, renamed symbols and hidden nodes
torch_network.py  the networks
tree_ops.py       sums over neighbours and trees, on a CPU
kernels.py        the same on a GPU
losses.py         objectives of the recipes, and their losses
trainer.py        optimizer steps, schedule, log, checkpoints
checkpoint.py     the folder of a run, and files of arrays
finetuning.py     find the sides of equalities, and train a network on them
"""
