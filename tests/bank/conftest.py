"""What the tests of the bank share."""

from __future__ import annotations

import pytest

from atlas_engine.bank import TaskVectorBank
from tests.bank import tuned


@pytest.fixture(scope="session")
def clip():
    return tuned.small_clip()


@pytest.fixture(scope="session")
def theta0():
    return tuned.base_weights()


@pytest.fixture(scope="session")
def tuned_vectors():
    return tuned.tuned_vectors()


@pytest.fixture(scope="session")
def bank():
    return TaskVectorBank.from_vectors(tuned.tuned_vectors())


@pytest.fixture(scope="session")
def grads():
    return tuned.base_gradient()
