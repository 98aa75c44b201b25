from django.apps import AppConfig


class PaperclipConfig(AppConfig):
    name = "paperclip"
    verbose_name = "Paperclip"
