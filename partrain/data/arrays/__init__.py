"""Data sets of arrays: IDX, npy, npz, HDF5, Arrow, mapped files."""
