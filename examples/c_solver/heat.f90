! The same two functions; what Fortran calls u(nx, ny) has the shape (ny, nx) in Python.
subroutine heat_step(ny, nx, k, dt, u, J, work) bind(c)
  use iso_c_binding
  integer(c_int), value :: ny, nx
  real(c_double), value :: k, dt
  real(c_double) :: u(nx, ny), J, work(nx, ny)
  J = J + dt * sum(u**2) / 2
  call laplace(nx, ny, u, work)
  work = u + dt * (k * work + u - u**3)
  u = work
end subroutine

subroutine heat_adjoint(ny, nx, k, dt, u, of_u, of_J, of_k, work) bind(c)
  use iso_c_binding
  integer(c_int), value :: ny, nx
  real(c_double), value :: k, dt, of_J
  real(c_double) :: u(nx, ny), of_u(nx, ny), of_k, work(nx, ny)
  call laplace(nx, ny, u, work)
  of_k = of_k + dt * sum(of_u * work)
  call laplace(nx, ny, of_u, work)
  of_u = of_u + dt * u * of_J + dt * (k * work + (1 - 3 * u**2) * of_u)
end subroutine

subroutine laplace(nx, ny, u, of)
  use iso_c_binding
  integer(c_int) :: nx, ny
  real(c_double) :: u(nx, ny), of(nx, ny)
  of = -4 * u
  of(2:, :) = of(2:, :) + u(:nx-1, :)
  of(:nx-1, :) = of(:nx-1, :) + u(2:, :)
  of(:, 2:) = of(:, 2:) + u(:, :ny-1)
  of(:, :ny-1) = of(:, :ny-1) + u(:, 2:)
end subroutine
