"""Prints how many empty tasks a second mpi4py's pool does: mpi4py.py TASKS CHUNKSIZE."""

import sys
import time

from mpi4py.futures import MPIPoolExecutor


def empty(i):
    return None


if __name__ == "__main__":
    tasks, chunksize = int(sys.argv[1]), int(sys.argv[2])
    with MPIPoolExecutor() as pool:
        for _ in pool.map(empty, range(100)):  # all workers have started
            pass
        begin = time.perf_counter()
        for _ in pool.map(empty, range(tasks), chunksize=chunksize):
            pass
        print(tasks / (time.perf_counter() - begin))
