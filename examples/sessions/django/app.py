"""What a visitor said, by Django's cache sessions and django-redis as they are. Coppice gives HOST, PORT and
COPPICE_SESSIONS_URL; the URL of a Redis works as well."""
import os, time
from django.conf import settings
from django.http import HttpResponse, JsonResponse
from django.urls import path

settings.configure(
    SECRET_KEY=os.environ.get("SESSION_SECRET", "change me"),
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    CACHES={"default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ["COPPICE_SESSIONS_URL"],
        # Fields are merged where they can be seen: JSON, and not the default, pickle.
        "OPTIONS": {"SERIALIZER": "django_redis.serializers.json.JSONSerializer"},
    }},
)


def shown(session):
    return JsonResponse({name: value for name, value in session.items() if not name.startswith("_")})


def change(request, field, value=None):
    session = request.session
    session.get(field)  # The session is read here,
    time.sleep(int(request.GET.get("wait", 0)) / 1000)  # and pages take their time.
    if value is None: session.pop(field, None)
    else: session[field] = value
    return shown(session)


def logout(request):
    request.session.flush()
    return JsonResponse({})


urlpatterns = [
    path("", lambda request: shown(request.session)),
    path("health", lambda request: HttpResponse("ok\n")),
    path("set/<field>/<value>", change),
    path("drop/<field>", change),
    path("logout", logout),
]

if __name__ == "__main__":
    import django
    from django.core.servers.basehttp import run
    from django.core.wsgi import get_wsgi_application
    django.setup()
    run(os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", 8000)), get_wsgi_application(), threading=True)
