"""What is said of an input that cannot be read."""

from __future__ import annotations

import pytest

from allranks.agent.data.input_request import InputRequest
from allranks.agent.data.input_source import Source
from allranks.core.data.addresses import Account, Store
from allranks.errors import Passing


@pytest.mark.slow
def test_a_store_out_of_reach_is_not_called_private() -> None:
    """A node without credentials asks again without any: then nobody answers."""
    nobody = Account(Store("azure", "c", "account", endpoint="http://127.0.0.1:1/account"))
    request = InputRequest("iris", "abfss://c@account.dfs.core.windows.net/a.csv", account=nobody)
    with pytest.raises(Passing) as caught:
        Source(request).list_files()
    assert "the store does not answer" in caught.value.message
    assert "allranks data map" in str(caught.value.hint)
