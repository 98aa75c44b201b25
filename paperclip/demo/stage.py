"""Plays the story of `story.py` into the database.

The past is made by the verbs of the board and the work, with the clock handed in; only the runs'
rows are written here, because no worker ever carried them. All in one transaction: no worker sees
a half-told story.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from django.db import transaction

from agents import roster, runs
from agents.adapters import base
from agents.models import Agent, HeartbeatRun, RunEvent
from billing import budgets, ledger
from companies import goals, partitions, tenancy
from companies.activity import Actor
from companies.models import Company, Goal, Project, User
from issues import board, consequences, questions, work
from issues.models import Issue
from paperclip.demo import story
from paperclip.demo.story import SAYS, Act, Tale, Word

Run = HeartbeatRun.Status
Kind = RunEvent.Kind

DAYS = 14
MODEL = "simulated"
NOTE = "Simulated: nobody was charged."
BUDGET_MICROS = 25_000_000
UNPRICED_CALLS = 1_000
ENTRANCE_SECONDS = 30  # between the runs that start now: there is something to see for a while
PACE = 2.5


@transaction.atomic
def play(*, owner: User, now: datetime) -> Company:
    """Make the demo company with its past; `owner` owns it. Some issues start at once."""
    return _Stage(owner, now).play()


class _Stage:
    def __init__(self, owner: User, now: datetime) -> None:
        self.owner = owner
        self.now = now
        self.chance = random.Random(7)  # noqa: S311 - a play, the same every time
        self.operator = Actor("user", owner.id, str(owner))
        self.agents: dict[str, Agent] = {}
        self.goals: dict[str, Goal] = {}
        self.projects: dict[str, Project] = {}
        self.issues: dict[str, Issue] = {}
        self.runs: list[HeartbeatRun] = []

    def play(self) -> Company:
        for days in range(0, DAYS + 20, 10):  # the past may reach into the month before
            partitions.ensure_all(now=self.ago(days))
        self.company = self.found()
        self.hire()
        self.aim()
        for tale in story.TALES:
            self.open(tale)
        for days_ago, tale, scene in self.scenes():
            self.perform(tale, scene, self.ago(days_ago))
        self.make_rounds()
        # What the past would have woken is past as well.
        self.company.runs.exclude(id__in=[run.id for run in self.runs]).delete()
        self.raise_curtain()
        return self.company

    def ago(self, days: float) -> datetime:
        return self.now - timedelta(days=days)

    # --- the setting -------------------------------------------------------------------------

    def found(self) -> Company:
        taken = Company.objects.filter(issue_prefix=story.PREFIX).exists()
        return tenancy.create(
            name=story.COMPANY,
            prefix="" if taken else story.PREFIX,
            description=story.DESCRIPTION,
            owner=self.owner,
            is_demo=True,
            now=self.ago(DAYS),
        )

    def hire(self) -> None:
        for role in story.CAST:
            self.agents[role.name] = roster.hire(
                company=self.company,
                actor=self.operator,
                now=self.ago(DAYS),
                name=role.name,
                title=role.title,
                role=role.role,
                capabilities=role.capabilities,
                instructions=role.instructions,
                reports_to=self.agents.get(role.boss),
                adapter_type="demo",
                adapter_config={
                    "script": role.script,
                    "failRate": role.fail_rate,
                    "pace": PACE,
                },
                on_finish=role.on_finish,
            )
        Agent.objects.filter(company=self.company).update(
            created_at=self.ago(DAYS), updated_at=self.ago(DAYS)
        )

    def aim(self) -> None:
        then = self.ago(DAYS)
        for key, title, level, status, parent in story.GOALS:
            self.goals[key] = goals.create_goal(
                company=self.company,
                actor=self.operator,
                now=then,
                title=title,
                level=level,
                status=status,
                parent=self.goals.get(parent),
            )
        for key, name, goal, lead, status in story.PROJECTS:
            self.projects[key] = goals.create_project(
                company=self.company,
                actor=self.operator,
                now=then,
                name=name,
                goal=self.goals[goal],
                lead_agent=self.agents[lead],
                status=status,
            )
        budgets.set_limit(
            company=self.company,
            scope="company",
            scope_id=self.company.id,
            limit_micros=BUDGET_MICROS,
            # So that a first model of one's own works at once, though nobody knows its price.
            unpriced_calls=UNPRICED_CALLS,
            actor=self.operator,
            now=self.now,
        )

    # --- the past ----------------------------------------------------------------------------

    def open(self, tale: Tale) -> None:
        mine = tale.now == "mine"
        project = self.projects.get(tale.project)
        self.issues[tale.key] = board.create(
            company=self.company,
            actor=self.operator,
            now=self.ago(tale.days_ago),
            title=tale.title,
            description=tale.text,
            priority=tale.priority,
            assignee_agent=self.agents.get(tale.agent),
            assignee_user=self.owner if mine else None,
            project=project,
            goal=project.goal if project else None,
            parent=self.issues.get(tale.parent),
            blocked_by=[self.issues[key] for key in tale.blocked_by],
            wake=False,
        )

    def scenes(self) -> list[tuple[float, Tale, Act | Word | str]]:
        """All that happened to all issues, in the order of time."""
        found: list[tuple[float, Tale, Act | Word | str]] = []
        for tale in story.TALES:
            found += [(scene.days_ago, tale, scene) for scene in tale.past]
            if tale.now == "cancelled":
                found.append((tale.past[-1].days_ago - 0.2, tale, "cancelled"))
            if tale.now == "mine":
                found.append((tale.days_ago - 0.5, tale, "in_progress"))
        return sorted(found, key=lambda entry: -entry[0])

    def perform(self, tale: Tale, scene: Act | Word | str, at: datetime) -> None:
        issue = self.issues[tale.key]
        if isinstance(scene, Act):
            self.act(issue, scene, at)
        elif isinstance(scene, Word):
            agent = self.agents.get(scene.agent)
            actor = Actor("agent", agent.id, agent.name) if agent else self.operator
            board.comment(issue=issue, body=scene.body, actor=actor, now=at, wake=False)
            issue.refresh_from_db()
            if agent is None and issue.status == Issue.Status.IN_REVIEW:
                board.update(issue=issue, changes={"status": "todo"}, actor=self.operator, now=at)
        else:
            words = "Not now, then." if scene == "cancelled" else None
            board.update(
                issue=issue, changes={"status": scene}, actor=self.operator, now=at, comment=words
            )

    def act(self, issue: Issue, act: Act, began: datetime) -> None:
        agent = self.agents[act.agent]
        ended = began + timedelta(minutes=act.minutes)
        run = self.start(agent, issue, began)
        work.checkout(issue=issue, agent=agent, run=run, now=began)
        run.issue = issue
        if act.ends == "fails":
            code = base.Code.SIMULATED
            message = "Simulated failure: this agent is set to fail now and then (failRate)."
            work.report(run=run, status=Run.FAILED, code=code, message=message, now=ended)
            self.end(run, ended, Run.FAILED, message=message, code=code)
            return
        words = SAYS + act.summary
        if act.ends == "asks":
            self.ask(issue, agent, run, act, ended)
        wish = None if act.ends == "asks" else act.ends
        work.report(run=run, status=Run.SUCCEEDED, summary=words, wish=wish, now=ended)
        self.end(run, ended, Run.SUCCEEDED, message=words)

    def ask(self, issue: Issue, agent: Agent, run: HeartbeatRun, act: Act, now: datetime) -> None:
        questions.ask(
            issue=issue,
            actor=Actor("agent", agent.id, agent.name, run.id),
            payload={"question": SAYS + act.summary, "options": ["Graphite", "Sand"]},
            now=now,
        )

    def make_rounds(self) -> None:
        """A regular round or two a day, so that charts have a rhythm."""
        for day in range(DAYS - 1, 0, -1):
            for _ in range(self.chance.choice((1, 1, 2, 3))):
                name, words = self.chance.choice(story.ROUNDS)
                began = self.ago(day - self.chance.uniform(0.05, 0.9))
                run = self.start(self.agents[name], None, began)
                ended = began + timedelta(seconds=self.chance.randint(20, 150))
                self.end(run, ended, Run.SUCCEEDED, message=SAYS + words)

    # --- the runs of the past ----------------------------------------------------------------

    def start(self, agent: Agent, issue: Issue | None, began: datetime) -> HeartbeatRun:
        source = HeartbeatRun.Source.ASSIGNMENT if issue else HeartbeatRun.Source.TIMER
        run = HeartbeatRun.objects.create(
            company=self.company,
            agent=agent,
            issue=issue,
            status=Run.RUNNING,
            priority=issue.priority if issue else 2,
            source=source,
            reason="issue_assigned" if issue else "heartbeat_timer",
            not_before=began,
            created_at=began,
            started_at=began + timedelta(milliseconds=self.chance.randint(3, 900)),
            output_at=began,
            epoch=1,
            adapter_type=agent.adapter_type,
            model=MODEL,
        )
        self.runs.append(run)
        return run

    def end(
        self, run: HeartbeatRun, ended: datetime, status: str, *, message: str, code: str = ""
    ) -> None:
        """Close the run's row, write its output, book what it "used"."""
        failed = status == Run.FAILED
        HeartbeatRun.objects.filter(id=run.id).update(
            status=status,
            epoch=2,
            finished_at=ended,
            output_at=ended,
            code=code,
            message=message if failed else "",
            summary="" if failed else message,
            result={"simulated": True},
        )
        self.write_output(run, ended, status, message, code)
        usage = base.Usage(
            call=1,
            provider=MODEL,
            model=MODEL,
            input_tokens=self.chance.randint(2_000, 24_000),
            output_tokens=self.chance.randint(150, 1_800),
            cost_micros=self.chance.randint(4_000, 90_000),
        )
        ledger.book(
            company_id=self.company.id,
            agent_id=run.agent_id,
            run_id=run.id,
            issue_id=run.issue_id,
            goal_id=run.issue.goal_id if run.issue else None,
            usage=usage,
            key=ledger.run_key(run.id, usage.call),
            note=NOTE,
            occurred_at=ended,
            now=self.now,
        )

    def write_output(
        self, run: HeartbeatRun, ended: datetime, status: str, message: str, code: str
    ) -> None:
        step = {"id": "step-1", "name": "read", "input": {"document": "the issue"}}
        answer: dict[str, object] = {"channel": "answer"}
        opening = f"{SAYS}No model is involved in this run and nothing is changed outside.\n\n"
        entries: list[tuple[str, str, dict[str, object] | None, datetime]] = [
            (Kind.STATUS, "", {"status": Run.RUNNING, "code": ""}, run.created_at),
            (Kind.TEXT, opening, answer, run.created_at + timedelta(seconds=1)),
            (Kind.STEP, "", {**step, "phase": "start"}, run.created_at + timedelta(seconds=2)),
            (
                Kind.STEP,
                "1 page",
                {**step, "phase": "end", "isError": False, "durationMs": 900},
                run.created_at + timedelta(seconds=3),
            ),
            (Kind.TEXT, message, answer, ended - timedelta(seconds=1)),
            (Kind.STATUS, "", {"status": status, "code": code}, ended),
        ]
        RunEvent.objects.bulk_create(
            RunEvent(
                run_id=run.id,
                company_id=run.company_id,
                run_created_at=run.created_at,
                seq=seq,
                epoch=1,
                kind=kind,
                text=text,
                data=data,
                at=at,
            )
            for seq, (kind, text, data, at) in enumerate(entries, start=1)
        )

    # --- now ---------------------------------------------------------------------------------

    def raise_curtain(self) -> None:
        """What starts in front of the newcomer's eyes, and the timers."""
        Agent.objects.filter(id=self.agents["Quinn"].id).update(error_code=base.Code.SIMULATED)
        firmware = self.issues["firmware"]
        board.update(
            issue=firmware,
            changes={"status": "blocked", "blocked_reason": consequences.WAITS_FOR_CHILDREN},
            actor=self.operator,
            now=self.ago(3.1),
        )
        for place, tale in enumerate(t for t in story.TALES if t.now == "starts"):
            runs.wake(
                agent=self.agents[tale.agent],
                issue=self.issues[tale.key],
                reason="issue_assigned",
                source=HeartbeatRun.Source.ASSIGNMENT,
                actor=self.operator,
                now=self.now,
                not_before=self.now + timedelta(seconds=place * ENTRANCE_SECONDS),
            )
        for role in story.CAST:
            if role.beats_seconds:
                roster.update(
                    agent=self.agents[role.name],
                    changes={"heartbeat_enabled": True, "interval_seconds": role.beats_seconds},
                    actor=self.operator,
                    now=self.now,
                )
