import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Use one torch thread: operations this small only wait for each other's threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
