"""The peers of the benchmark of requests per second do the same work."""

import pytest

from benchmarks.asgi import Endpoint, serving
from benchmarks.requests import peers
from benchmarks.wire import call
from benchmarks.workloads import Workload, confirm, plain

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("workload", [plain(), confirm()], ids=["plain", "ask"])
async def test_starlette_sends_as_many_bytes_as_roundtrip(workload: Workload) -> None:
    async def size(endpoint: Endpoint) -> int:
        request = call()
        response = await endpoint.post(request.body, headers=request.headers)
        assert response.status == 200
        return len(response.body)

    sizes: list[int] = []
    for variant in peers(["roundtrip", "starlette"]):
        app = variant.build(workload)
        assert app is not None
        async with serving(app) as endpoint:
            sizes.append(await size(endpoint))
    ours, bare = sizes
    assert abs(ours - bare) <= 4
