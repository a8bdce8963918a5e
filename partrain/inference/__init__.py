"""Uses of a checkpoint after training, one module and one command each.

    evaluate    metrics by class, number, token or item        diff    distances between two networks
    predict     answers to the items of a file                 soup    the average of several networks
    generate    text that continues a prompt                   tree    the tensors, nested as the modules are
    export      formats that other programs read

`open` reads a checkpoint and its job, `network` rebuilds the network, `inputs` reads items from files, `output` writes files.
"""
