/* romio.c: the collective writes and reads of filebench, by the MPI-IO of an installed MPI (ROMIO in MPICH).
 *
 *   mpicc -O2 romio.c -o romio && mpiexec -n 8 ./romio FOLDER MIB BLOCK TURNS
 *
 * It prints the lines of filebench: the median of the turns, in MB/s of all ranks together. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, turns;
static char *mine;
static long bytes;

static void check(int code, const char *what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int n;
  MPI_Error_string(code, text, &n);
  fprintf(stderr, "romio: %s: %s\n", what, text);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(const char *name, MPI_File f, MPI_Offset at, int reads) {
  double rates[turns];
  for (int i = 0; i < turns; i++) {
    MPI_Status st;
    int n;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    if (reads)
      check(MPI_File_read_at_all(f, at, mine, bytes, MPI_BYTE, &st), name);
    else
      check(MPI_File_write_at_all(f, at, mine, bytes, MPI_BYTE, &st), name);
    MPI_Barrier(MPI_COMM_WORLD);
    rates[i] = size * (double)bytes / 1e6 / (MPI_Wtime() - begin);
    MPI_Get_count(&st, MPI_BYTE, &n);
    if (n != bytes) check(MPI_ERR_TRUNCATE, name);
    for (long k = 0; reads && k < bytes; k++)
      if (mine[k] != (char)(k * 7 + rank)) check(MPI_ERR_IO, "another byte was read than written");
  }
  qsort(rates, turns, sizeof *rates, ascending);
  if (rank == 0) printf("%-36s %9.0f MB/s\n", name, (rates[(turns - 1) / 2] + rates[turns / 2]) / 2);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 5) {
    if (rank == 0) fprintf(stderr, "usage: romio FOLDER MIB BLOCK TURNS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  long block = atol(argv[3]), count = atol(argv[2]) * (1L << 20) / block;
  turns = atoi(argv[4]);
  bytes = count * block;
  mine = malloc(bytes);
  for (long k = 0; k < bytes; k++) mine[k] = k * 7 + rank;
  char name[4096];
  snprintf(name, sizeof name, "%s/filebench.data", argv[1]);

  MPI_File f;
  MPI_Datatype interleaved;
  check(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                      MPI_INFO_NULL, &f), "open");
  MPI_Type_vector(count, block, size * block, MPI_BYTE, &interleaved);
  MPI_Type_commit(&interleaved);
  check(MPI_File_set_view(f, rank * block, MPI_BYTE, interleaved, "native", MPI_INFO_NULL), "set_view");
  measure("interleaved WriteAll", f, 0, 0);
  measure("interleaved ReadAll", f, 0, 1);
  check(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "set_view");
  measure("contiguous WriteAll", f, (MPI_Offset)rank * bytes, 0);
  measure("contiguous ReadAll", f, (MPI_Offset)rank * bytes, 1);
  check(MPI_File_close(&f), "close");
  MPI_Type_free(&interleaved);
  MPI_Finalize();
}
