/* Trajectories and sensitivities of Lotka-Volterra for many particles, as one would write them in C.

   u1' = a u1 - b u1 u2,  u2' = d u1 u2 - g u2,  with s = du/da and r = du/db, by the six stages of
   Tsitouras' method on given steps. The particle loop is outermost: its state stays in registers. */

#include <stddef.h>

#define SIZE 6 /* u1 u2, s1 s2 = d/da, r1 r2 = d/db */

static void slope(const double *u, double a, double b, double g, double d, double *f) {
  double x = u[0], y = u[1];
  f[0] = a * x - b * x * y;
  f[1] = d * x * y - g * y;
  double xx = a - b * y, xy = -b * x, yx = d * y, yy = d * x - g;
  f[2] = xx * u[2] + xy * u[3] + x;
  f[3] = yx * u[2] + yy * u[3];
  f[4] = xx * u[4] + xy * u[5] - x * y;
  f[5] = yx * u[4] + yy * u[5];
}

/* lower: 15 numbers a_ij row by row; weights: 6. out: (particles, steps, SIZE). */
void solve(size_t particles, size_t steps, const double *h, const double *lower,
           const double *weights, const double *alpha, const double *beta, double g, double d,
           const double *start, double *out) {
  for (size_t n = 0; n < particles; n++) {
    double u[SIZE] = {start[0], start[1], 0, 0, 0, 0}, k[6][SIZE], at[SIZE];
    for (size_t m = 0; m < steps; m++) {
      const double *row = lower;
      slope(u, alpha[n], beta[n], g, d, k[0]);
      for (int i = 1; i < 6; row += i, i++) {
        for (int c = 0; c < SIZE; c++) {
          double sum = 0;
          for (int j = 0; j < i; j++) sum += row[j] * k[j][c];
          at[c] = u[c] + h[m] * sum;
        }
        slope(at, alpha[n], beta[n], g, d, k[i]);
      }
      double *kept = out + (n * steps + m) * SIZE;
      for (int c = 0; c < SIZE; c++) {
        double sum = 0;
        for (int i = 0; i < 6; i++) sum += weights[i] * k[i][c];
        kept[c] = u[c] += h[m] * sum;
      }
    }
  }
}
