"""After training: what is done with a checkpoint, one module and one command each.

    evaluate    metrics by class, by number, by token, by item        diff    how far two networks are from each other
    predict     answers to the items of a file; text to go on with    soup    the average of several networks
    export      the formats other programs read                       tree    the tensors, as the modules have them

`reading` makes items of files, `output` makes files of answers, `commands` is the command line of it all.
"""
