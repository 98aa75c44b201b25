from tests.api.conftest import (  # noqa: F401
    adas_run,
    as_ada,
    as_olga,
    as_oscar,
    as_run,
    as_spy,
    as_vera,
)
