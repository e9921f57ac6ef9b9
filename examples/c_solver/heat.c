/* du/dt = k lap(u) + u - u^3 in a box, u = 0 around it; J = sum over steps of dt |u|^2 / 2. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double lap(const double *u, int ny, int nx, int r, int c) {
    const double *at = u + (long)r * nx + c;
    return (r > 0 ? at[-nx] : 0) + (r < ny - 1 ? at[nx] : 0)
         + (c > 0 ? at[-1] : 0) + (c < nx - 1 ? at[1] : 0) - 4 * *at;
}

/* One step in place; `work` is as large as u. */
void heat_step(int ny, int nx, double k, double dt, double *u, double *J, double *work) {
    double sum = 0;
    for (int r = 0; r < ny; r++)
        for (int c = 0; c < nx; c++) {
            long i = (long)r * nx + c;
            sum += u[i] * u[i];
            work[i] = u[i] + dt * (k * lap(u, ny, nx, r, c) + u[i] - u[i] * u[i] * u[i]);
        }
    *J += dt * sum / 2;
    memcpy(u, work, sizeof *u * ny * nx);
}

/* Its adjoint: from dJ/du after the step to dJ/du before it, in place; dJ/dk is added to of_k. */
void heat_adjoint(int ny, int nx, double k, double dt, const double *u, double *of_u, double of_J,
                  double *of_k, double *work) {
    double sum = 0;
    for (int r = 0; r < ny; r++)
        for (int c = 0; c < nx; c++) {
            long i = (long)r * nx + c;
            sum += of_u[i] * lap(u, ny, nx, r, c);
            work[i] = of_u[i] + dt * u[i] * of_J
                    + dt * (k * lap(of_u, ny, nx, r, c) + (1 - 3 * u[i] * u[i]) * of_u[i]);
        }
    *of_k += dt * sum;
    memcpy(of_u, work, sizeof *u * ny * nx);
}

/* A solver that owns its memory. of_u is dJ/du, and so on. */
typedef struct {
    int ny, nx;
    double k, dt, *u, J, *of_u, of_J, of_k, *work;
} Solver;

Solver *solver_new(int ny, int nx, double k, double dt) {
    Solver *s = calloc(1, sizeof *s);
    size_t size = (size_t)ny * nx;
    *s = (Solver){.ny = ny, .nx = nx, .k = k, .dt = dt};
    s->u = calloc(size, 8), s->of_u = calloc(size, 8), s->work = calloc(size, 8);
    return s;
}

void solver_free(Solver *s) { free(s->u), free(s->of_u), free(s->work), free(s); }

double *solver_memory(Solver *s, int which) {
    return (double *[]){s->u, &s->J, &s->k, s->of_u, &s->of_J, &s->of_k}[which];
}

/* The tape of step i, which is u before it. */
int solver_tape(Solver *s, long i, double *tape) {
    memcpy(tape, s->u, sizeof *tape * s->ny * s->nx);
    return 0;
}

/* Step i; its tape is stored, unless `tape` is NULL. Returns 1 if J is no number. */
int solver_step(Solver *s, long i, double *tape) {
    if (tape) solver_tape(s, i, tape);
    heat_step(s->ny, s->nx, s->k, s->dt, s->u, &s->J, s->work);
    return !isfinite(s->J);
}

/* The adjoint of step i, from u as it was before that step. */
int solver_reverse(Solver *s, long i, const double *tape) {
    heat_adjoint(s->ny, s->nx, s->k, s->dt, tape, s->of_u, s->of_J, &s->of_k, s->work);
    return 0;
}

/* After the last step: J, whose derivative with respect to the last state is 1 for J, 0 for u. */
double solver_seed(Solver *s, long n) { return s->of_J = 1, s->J; }
