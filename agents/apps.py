from django.apps import AppConfig
from django.conf import settings


class AgentsConfig(AppConfig):
    name = "agents"
    verbose_name = "Agents"

    def ready(self) -> None:
        from agents import loop_limits
        from agents.adapters import isolation, outbound

        outbound.configure(allow=settings.OUTBOUND_ALLOW)
        isolation.configure(hidden=[str(settings.DATA_DIR)])
        loop_limits.of_instance()  # a limit that nobody knows is told at the start
