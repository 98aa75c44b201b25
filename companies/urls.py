"""Addresses of the ground floor: coming in, and what lies below `/c/<prefix>/`."""

from django.urls import path

from companies.views import activity, cli_login, goals, second_factor, settings, sign_in

outside = [
    path("sign-in", sign_in.sign_in),
    path("sign-in/code", second_factor.code),
    path("sign-in/<str:token>", sign_in.sign_in_link),
    path("sign-out", sign_in.sign_out),
    path("admin/login/", sign_in.admin_sign_in),
    path("cli-login/<uuid:login_id>", cli_login.cli_login_page),
    path("second-factor", second_factor.page),
    path("theme", sign_in.theme),
    path("companies/new", settings.new_company),
]

urlpatterns = [
    path("activity/", activity.activity),
    path("activity/table.csv", activity.table),
    path("goals/", goals.goals),
    path("goals/save", goals.save_goal),
    path("goals/projects", goals.save_project),
    path("settings/", settings.settings),
    path("settings/company", settings.company),
    path("settings/state", settings.state),
    path("settings/members", settings.invite),
    path("settings/members/<uuid:user_id>", settings.member),
    path("settings/secrets", settings.secret),
    path("settings/secrets/forget", settings.forget_secret),
    path("settings/keys", settings.key),
]
