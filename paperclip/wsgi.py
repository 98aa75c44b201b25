"""Django as a plain WSGI application, for any WSGI server; `paperclip.asgi` is what `up` serves."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "paperclip.settings")

application = get_wsgi_application()
