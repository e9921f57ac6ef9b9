"""What several tests of runs that are stopped or killed compare with."""

import pytest
from cli.resumable import reference


@pytest.fixture(scope="session")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """That of the gradient of an uninterrupted run without overlap."""
    return reference(tmp_path_factory.mktemp("whole"))["gradient_digest"]
