! ckio_schedule.f90: follow a plan of `ckio plan` in a Fortran program that keeps its main loop.
!
!     type(ckio_plan) :: plan
!     type(ckio_action) :: a
!     call ckio_open(plan, "plan.txt")
!     if (plan%error /= ckio_ok) error stop ckio_message(plan)
!     do while (ckio_next(plan, a))
!       select case (a%kind)
!       case (ckio_advance)   ! take the steps a%begin to a%end - 1
!       case (ckio_record)    ! take them, and store their tapes in the working memory
!       case (ckio_reverse)   ! take the adjoint of the steps a%end - 1 to a%begin, from its tapes
!       case (ckio_write)     ! copy the state x_i, or the tape of step i, with i = a%begin, to slot
!                             ! a%slot of level a%level, both from 0
!       case (ckio_read)      ! copy it back
!       case (ckio_discard)   ! it is not needed any more
!       end select
!     end do
!     call ckio_close(plan)
!
! Link it with ckio_schedule.h, compiled as C; what it checks and all names are explained there:
!
!     cc -x c -DCKIO_SCHEDULE_IMPLEMENTATION -c ckio_schedule.h -o ckio_schedule.o
module ckio_schedule
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: ckio_open, ckio_next, ckio_close, ckio_message, ckio_name

  integer(c_int32_t), parameter, public :: &
    ckio_advance = 0, ckio_record = 1, ckio_reverse = 2, &   ! ckio_action%kind
    ckio_write = 3, ckio_read = 4, ckio_discard = 5
  integer(c_int32_t), parameter, public :: ckio_state = 0, ckio_tape = 1  ! ckio_action%checkpoint
  integer(c_int64_t), parameter, public :: ckio_ok = 0, ckio_no_file = 1, ckio_no_memory = 2, &
    ckio_bad_text = 3, ckio_not_supported = 4, ckio_illegal = 5           ! ckio_plan%error

  type, bind(c), public :: ckio_action
    integer(c_int32_t) :: kind, checkpoint, level, slot
    integer(c_int64_t) :: begin, end
  end type

  type, bind(c), public :: ckio_level
    character(kind=c_char) :: name(64)
    integer(c_int64_t) :: capacity, peak, slots
  end type

  type, bind(c), public :: ckio_plan
    integer(c_int64_t) :: error, line
    character(kind=c_char) :: message(400)
    integer(c_int64_t) :: steps, tapes, levels
    type(ckio_level) :: level(0:15)
    integer(c_int64_t) :: bytes(0:1)  ! of ckio_state and ckio_tape
    type(c_ptr) :: actions
    integer(c_int64_t) :: count, next  ! next = 0 begins again
  end type

  interface
    function c_open(plan, path) result(error) bind(c, name="ckio_schedule_open")
      import :: ckio_plan, c_char, c_int
      type(ckio_plan), intent(out) :: plan
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int) :: error
    end function

    function c_next(plan, action) result(more) bind(c, name="ckio_schedule_next")
      import :: ckio_plan, ckio_action, c_int
      type(ckio_plan), intent(inout) :: plan
      type(ckio_action), intent(out) :: action
      integer(c_int) :: more
    end function

    subroutine ckio_close(plan) bind(c, name="ckio_schedule_close")
      import :: ckio_plan
      type(ckio_plan), intent(inout) :: plan
    end subroutine
  end interface

contains

  ! Read and check a plan; plan%error says whether it was refused, and ckio_message(plan) why.
  subroutine ckio_open(plan, path)
    type(ckio_plan), intent(out) :: plan
    character(len=*), intent(in) :: path
    integer(c_int) :: error
    error = c_open(plan, trim(path)//c_null_char)
  end subroutine

  ! Put the next action into a; false after the last.
  logical function ckio_next(plan, a)
    type(ckio_plan), intent(inout) :: plan
    type(ckio_action), intent(out) :: a
    ckio_next = c_next(plan, a) == 1
  end function

  function ckio_message(plan) result(text)
    type(ckio_plan), intent(in) :: plan
    character(len=:), allocatable :: text
    text = text_of(plan%message)
  end function

  ! The name of a level, from 0.
  function ckio_name(plan, level) result(text)
    type(ckio_plan), intent(in) :: plan
    integer, intent(in) :: level
    character(len=:), allocatable :: text
    text = text_of(plan%level(level)%name)
  end function

  pure function text_of(letters) result(text)
    character(kind=c_char), intent(in) :: letters(:)
    character(len=:), allocatable :: text
    integer :: i
    text = ""
    do i = 1, size(letters)
      if (letters(i) == c_null_char) exit
      text = text//letters(i)
    end do
  end function
end module
