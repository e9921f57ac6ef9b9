"""pyrevolve's revolvers, which Devito uses, with their checkpoints on ckio's levels."""

import gc

import numpy as np
import pytest

from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, MissingCheckpoint
from ckio.platform import Affine, Level, Platform

pyrevolve = pytest.importorskip("pyrevolve")
from ckio.adapters.pyrevolve import CkioStorage, storages  # noqa: E402

STEPS, GRID = 60, 12
SPEED = 0.1 + 0.1 * np.random.default_rng(0).random((GRID, GRID))


def laplacian(u):
    return sum(np.roll(u, shift, axis) for axis in (0, 1) for shift in (1, -1)) - 4 * u


class Wave(pyrevolve.Checkpoint):
    """Two time levels of a wave in single and double precision, stepped in place."""

    dtype = np.uint8

    def __init__(self):
        start = np.random.default_rng(1).normal(size=(GRID, GRID))
        self.before, self.now = start.copy(order="F"), start.copy()
        self.energy = np.zeros((), np.float32)

    @property
    def size(self):
        return self.before.nbytes + self.now.nbytes + self.energy.nbytes

    def get_data(self, timestep):
        return [self.before, self.now, self.energy]

    get_data_location = get_data

    def step(self):
        later = 2 * self.now - self.before + SPEED * laplacian(self.now) - 1e-3 * self.now**3
        self.before[...], self.now[...] = self.now, later
        self.energy[...] += np.float32((later**2).mean())


class Plain(Wave):
    """What pyrevolve's own storages can hold of it: arrays in C order, of one dtype."""

    dtype, size = np.float64, 2 * GRID * GRID

    def __init__(self):
        super().__init__()
        self.before = self.now.copy()

    def get_data(self, timestep):
        return [self.before, self.now]

    get_data_location = get_data


class Forward(pyrevolve.Operator):
    def __init__(self, wave):
        self.wave, self.steps = wave, 0

    def apply(self, *, t_start, t_end):
        for _ in range(t_start, t_end):
            self.wave.step()
            self.steps += 1


class Back(pyrevolve.Operator):
    """The adjoint of a step; x_n seeds it, and it reads the state after its step."""

    def __init__(self, wave):
        self.wave, self.bar = wave, None
        self.energies = []

    def apply(self, *, t_start, t_end):
        if self.bar is None:
            self.bar = np.zeros((GRID, GRID)), self.wave.now.copy()
        bar_before, bar_now = self.bar
        u = self.wave.before
        self.energies.append(self.wave.energy.item())
        turned = bar_before + 2 * bar_now + laplacian(SPEED * bar_now) - 3e-3 * u**2 * bar_now
        self.bar = -bar_now, turned


def reference():
    wave, back = Wave(), None
    states = []
    for _ in range(STEPS):
        wave.step()
        states.append((wave.before.copy(), wave.now.copy(), wave.energy.copy()))
    back = Back(wave)
    for before, now, energy in reversed(states):
        wave.before, wave.now, wave.energy = before, now, energy
        back.apply(t_start=0, t_end=1)
    return back.bar, back.energies


def same(back):
    bar, energies = reference()
    assert all(np.array_equal(mine, right) for mine, right in zip(back.bar, bar, strict=True))
    assert back.energies == energies


def two_levels(path, *, ram=3, disk=6, nbytes=None):
    nbytes = Wave().nbytes if nbytes is None else nbytes
    return Platform(
        (
            Level(name="ram", capacity=ram * nbytes),
            Level(
                name="disk",
                capacity=disk * nbytes,
                backend="directory",
                options={"path": str(path / "disk")},
                write=Affine(latency=1.5),
                read=Affine(latency=0.5),
            ),
        )
    )


def test_a_revolver_of_many_levels_has_the_gradient_of_one_that_stores_all(tmp_path):
    wave = Wave()
    forward, back = Forward(wave), Back(wave)
    ram, disk = places = storages(two_levels(tmp_path), wave.nbytes, STEPS)
    assert [(it.name, it.n_ckp, it.wd, it.rd) for it in places] == [
        ("ram", 3, 0, 0),
        ("disk", 6, 1.5, 0.5),
    ]
    revolver = pyrevolve.MultiLevelRevolver(wave, forward, back, STEPS, storage_list=places)
    revolver.apply_forward()
    revolver.apply_reverse()
    same(back)
    assert ram.saves > 0
    assert disk.saves > 0
    assert disk.loads >= disk.saves
    assert (tmp_path / "disk").exists()
    del revolver, ram, disk, places
    gc.collect()
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("again", ["the same storages", "others on one Scratch"])
def test_an_inversion_takes_gradient_after_gradient(tmp_path, again):
    nbytes = Wave().nbytes
    with Scratch(two_levels(tmp_path)) as scratch:
        places = storages(scratch, nbytes, STEPS)
        for stops in (False, True, False):  # the second is given up after its forward sweep
            wave = Wave()
            back = Back(wave)
            if again != "the same storages":
                places = storages(scratch, nbytes, STEPS)
            revolver = pyrevolve.MultiLevelRevolver(
                wave, Forward(wave), back, STEPS, storage_list=list(places)
            )
            revolver.apply_forward()
            if not stops:
                revolver.apply_reverse()
                same(back)
            del revolver
        assert any(list(level.keys()) for level in scratch.backends)
        del places
        gc.collect()
        assert not any(list(level.keys()) for level in scratch.backends)


@pytest.mark.parametrize("backend", ["ram", "directory", "hdf5"])
def test_a_revolver_of_one_level(tmp_path, backend):
    wave = Wave()
    forward, back = Forward(wave), Back(wave)
    path = {"hdf5": {"path": str(tmp_path / "a.h5")}, "directory": {"path": str(tmp_path / "d")}}
    level = Level(name="one", backend=backend, options=path.get(backend, {}))
    with Scratch(Platform((level,))) as scratch:
        place = CkioStorage(scratch, 0, wave.nbytes, 5)
        revolver = pyrevolve.SingleLevelRevolver(wave, forward, back, 5, STEPS)
        revolver.resetStorageList()
        revolver.addStorage(place)
        revolver.apply_forward()
        revolver.apply_reverse()
    same(back)
    plain = Plain()
    count, other = Forward(plain), Back(plain)
    theirs = pyrevolve.SingleLevelRevolver(plain, count, other, 5, STEPS)
    theirs.apply_forward()
    theirs.apply_reverse()
    assert forward.steps == count.steps
    assert place.loads >= place.saves > 5
    assert not list(tmp_path.rglob("*"))


def test_a_full_level_raises_where_theirs_loses_the_checkpoint(tmp_path):
    theirs = pyrevolve.NumpyStorage(3, 1, np.float64, profiler=pyrevolve.Profiler())
    theirs.push([np.ones(3)])
    theirs.push([np.full(3, 2.0)])  # says nothing
    found = np.zeros(3)
    theirs.peek([found])
    assert found.tolist() == [1, 1, 1]

    (ours,) = storages(Platform((Level(name="ram", capacity=24),)), 24, 9)
    ours.push([np.ones(3)])
    assert ours.isFull()
    with pytest.raises(LevelFull, match=r"level 'ram' can store 1 checkpoints of 24 bytes"):
        ours.push([np.full(3, 2.0)])
    ours.pop([found])
    assert ours.isEmpty()
    with pytest.raises(MissingCheckpoint, match="no checkpoint in slot"):
        ours.peek([found])


def test_arrays_are_filled_in_place_whatever_their_order_and_dtype():
    (place,) = storages(Platform((Level(name="ram"),)), 1000, 3)
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    arrays = [wide[:, ::2], np.asfortranarray(wide.astype(complex)), np.array(7, np.int16)]
    place.save(1, arrays)
    place.save(1, [array + 1 for array in arrays])
    field = np.zeros((4, 6), np.float32)
    into = [field[:, 1::2], np.zeros((4, 6), complex, order="F"), np.zeros((), np.int16)]
    place.load(1, into)
    assert all(np.array_equal(a + 1, b) for a, b in zip(arrays, into, strict=True))
    assert not field[:, ::2].any()


def test_what_does_not_fit_is_refused_and_what_is_damaged_is_not_loaded(tmp_path):
    (place,) = storages(
        Platform((Level(name="d", backend="directory", options={"path": str(tmp_path / "d")}),)),
        800,
        2,
    )
    with pytest.raises(BadInput, match="a checkpoint has 808 bytes, but a slot has 800"):
        place.save(0, [np.zeros(101)])
    place.save(0, [np.arange(100.0)])
    with pytest.raises(BadInput, match="does not fit"):
        place.load(0, [np.zeros(100, np.float32)])
    damaged = False
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        content = file.read_bytes()
        at = content.find(np.arange(100.0).tobytes())
        if at >= 0:
            damaged = True
            with file.open("r+b") as opened:
                opened.seek(at + 13)
                opened.write(b"\xff")
    assert damaged
    with pytest.raises(CorruptCheckpoint):
        place.load(0, [np.zeros(100)])
    with pytest.raises(BadInput, match="no level of the platform can store a checkpoint of 25"):
        storages(Platform((Level(name="ram", capacity=24),)), 25, 9)
