"""A seismic survey: the shot of `ckio.models.wave`, and the first guess of the ground below it."""

from ckio.models.wave import Wave


class Survey(Wave):
    """Two layers and an anomaly, which the observed ground has not.

    Parameters
    ----------
    grid : int
        Points along each side.
    anomaly : float
        By what part of it the speed is larger in the middle of the anomaly.
    deep : float
        Of waves in the second layer, in m s-1; the first one has 1500.
    dt : float
        Seconds of a step, which is stable also for ground faster than the guess.
    """

    def __init__(
        self,
        *,
        grid: int = 64,
        anomaly: float = -0.05,
        deep: float = 1800.0,
        dt: float = 0.003,
    ) -> None:
        super().__init__(grid=grid, layers=2, anomaly=anomaly, deep=deep, dt=dt)
