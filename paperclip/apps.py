from django.apps import AppConfig

from paperclip import children


class PaperclipConfig(AppConfig):
    name = "paperclip"
    verbose_name = "Paperclip"

    def ready(self) -> None:
        children.follow_parent()
