! The gradient of a Fortran program that keeps its main loop: Lorenz' model of 1996 on a circle, by
! Euler's method, with its adjoint written by hand. J is half of |x|**2 at the end; the gradient is its
! derivative with respect to x at the start. Level 0 of the plan is an array, and each other level
! is a file with a record for each slot.
program lorenz
  use, intrinsic :: iso_c_binding
  use ckio_schedule
  implicit none
  integer, parameter :: n = 40
  real(c_double), parameter :: dt = 1d-3, force = 8
  type(ckio_plan) :: plan
  real(c_double) :: adjoint(n), same(n)
  real(c_double), allocatable :: slots(:, :)  ! those of level 0
  character(len=1000) :: path

  call get_command_argument(1, path)
  call ckio_open(plan, path)
  if (plan%error /= ckio_ok) then
    print '(a)', ckio_message(plan)
    stop 1
  end if
  if (any(plan%bytes /= 8 * n)) stop "the sizes in this plan are those of another program"
  call follow(adjoint)
  call store_all(same)
  print '(a, es22.15)', "dJ/dx_1 = ", adjoint(1)
  if (any(adjoint /= same)) stop "NOT EQUAL to the gradient with all tapes in memory"
  print '(a)', "equal to the last bit to the gradient with all tapes in memory"
  call ckio_close(plan)

contains

  function start() result(x)
    real(c_double) :: x(n)
    x = force
    x(1) = force + 0.01d0
  end function

  ! A step; its tape is the state before it.
  subroutine step(x, tape)
    real(c_double), intent(inout) :: x(n)
    real(c_double), intent(out) :: tape(n)
    tape = x
    x = tape + dt * ((cshift(tape, 1) - cshift(tape, -2)) * cshift(tape, -1) - tape + force)
  end subroutine

  ! From dJ/dx after a step to dJ/dx before it.
  subroutine step_adjoint(of_x, tape)
    real(c_double), intent(inout) :: of_x(n)
    real(c_double), intent(in) :: tape(n)
    real(c_double) :: with(n)
    with = of_x * cshift(tape, -1)
    of_x = of_x + dt * (cshift(with, -1) - cshift(with, 2) - of_x &
      + cshift(of_x * (cshift(tape, 1) - cshift(tape, -2)), 1))
  end subroutine

  subroutine store_all(adjoint)
    real(c_double), intent(out) :: adjoint(n)
    real(c_double) :: x(n), tapes(n, 0:plan%steps - 1)
    integer(c_int64_t) :: i
    x = start()
    do i = 0, plan%steps - 1
      call step(x, tapes(:, i))
    end do
    adjoint = x
    do i = plan%steps - 1, 0, -1
      call step_adjoint(adjoint, tapes(:, i))
    end do
  end subroutine

  subroutine follow(adjoint)
    real(c_double), intent(out) :: adjoint(n)
    real(c_double) :: x(n), unused(n)
    real(c_double) :: tapes(n, 0:plan%tapes - 1)
    type(ckio_action) :: a
    integer(c_int64_t) :: first, i
    integer :: level
    logical :: seeded
    allocate (slots(n, 0:plan%level(0)%slots - 1))
    do level = 1, int(plan%levels) - 1
      open(unit=10 + level, status="scratch", access="direct", recl=8 * n, form="unformatted")
    end do
    x = start()
    first = 0  ! the step of tapes(:, 0)
    seeded = .false.
    do while (ckio_next(plan, a))
      select case (a%kind)
      case (ckio_advance, ckio_record)
        if (a%kind == ckio_record) first = a%begin
        do i = a%begin, a%end - 1
          if (a%kind == ckio_record) then
            call step(x, tapes(:, i - first))
          else
            call step(x, unused)
          end if
        end do
        if (a%end == plan%steps .and. .not. seeded) then  ! the adjoint begins once
          adjoint = x
          seeded = .true.
        end if
      case (ckio_reverse)
        do i = a%end - 1, a%begin, -1
          call step_adjoint(adjoint, tapes(:, i - first))
        end do
      case (ckio_write)
        if (a%checkpoint == ckio_state) then
          call write_slot(a, x)
        else
          call write_slot(a, tapes(:, 0))
        end if
      case (ckio_read)
        if (a%checkpoint == ckio_state) then
          call read_slot(a, x)
        else
          call read_slot(a, tapes(:, 0))
          first = a%begin
        end if
      end select
    end do
    deallocate (slots)
  end subroutine

  subroutine write_slot(a, values)
    type(ckio_action), intent(in) :: a
    real(c_double), intent(in) :: values(n)
    if (a%level == 0) then
      slots(:, a%slot) = values
    else
      write(10 + a%level, rec=a%slot + 1) values
    end if
  end subroutine

  subroutine read_slot(a, values)
    type(ckio_action), intent(in) :: a
    real(c_double), intent(out) :: values(n)
    if (a%level == 0) then
      values = slots(:, a%slot)
    else
      read(10 + a%level, rec=a%slot + 1) values
    end if
  end subroutine
end program
