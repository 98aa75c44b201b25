"""Who works in the demo company and what has happened there in the last two weeks.

Days count back from now. Everything that an agent "says" begins with `SAYS`, as the demo adapter
does it, because no model ever thought it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SAYS = "[Simulated] "

COMPANY = "Acme Robotics (demo)"
PREFIX = "ACM"
DESCRIPTION = (
    "A simulated company that builds robot arms for small workshops. Its agents only play: they"
    " use no model and change nothing outside, and what their earlier runs cost is made up. Archive"
    " it under Settings when you have seen enough."
)


@dataclass(frozen=True, slots=True)
class Role:
    """One agent of the org chart."""

    name: str
    title: str
    role: str
    boss: str = ""
    script: str = "auto"
    on_finish: Literal["done", "in_review"] = "done"
    capabilities: str = ""
    instructions: str = ""
    beats_seconds: int = 0  # 0: no timer
    fail_rate: float = 0.0


CAST = (
    Role(
        "Robin",
        "Chief executive",
        "ceo",
        capabilities="Sets priorities, splits goals into issues, asks when a decision is missing.",
        instructions="Keep the company on its goals. Delegate; ask the operator about money.",
        script="research",
        beats_seconds=1_800,
    ),
    Role(
        "Ellis",
        "Lead engineer",
        "engineer",
        "Robin",
        "engineering",
        capabilities="Motion control, firmware, code review.",
        instructions="The smallest change that works, with a test.",
    ),
    Role(
        "Quinn",
        "Quality engineer",
        "qa",
        "Ellis",
        "engineering",
        capabilities="Test plans, regression tests, release checks.",
        instructions="Try to break it. Write down how.",
        beats_seconds=3_600,
        fail_rate=0.15,
    ),
    Role(
        "Iris",
        "Designer",
        "designer",
        "Robin",
        "research",
        "in_review",
        capabilities="Industrial design, interface drafts.",
        instructions="Show two variants and say which you would take.",
    ),
    Role(
        "Jules",
        "Head of marketing",
        "marketing",
        "Robin",
        "research",
        capabilities="Market research, launch planning.",
        instructions="Facts first, with their source.",
    ),
    Role(
        "Wren",
        "Writer",
        "writer",
        "Jules",
        "writing",
        "in_review",
        capabilities="Announcements, documentation, posts.",
        instructions="Short sentences. No jargon.",
    ),
)

# key, title, level, status, parent
GOALS = (
    ("arms", "Robot arms that small workshops can afford", "company", "active", ""),
    ("mark2", "Ship the Mark II arm", "team", "active", "arms"),
    ("customers", "Find the first ten customers", "team", "active", "arms"),
    ("support", "Answer every customer within a day", "team", "planned", "arms"),
)

# key, name, goal, lead, status
PROJECTS = (
    ("arm", "Mark II arm", "mark2", "Ellis", "in_progress"),
    ("launch", "Launch", "customers", "Jules", "in_progress"),
    ("site", "Website", "customers", "Iris", "planned"),
)


@dataclass(frozen=True, slots=True)
class Act:
    """A run in the past: who, when (days ago), how long, what came out."""

    agent: str
    days_ago: float
    minutes: float
    summary: str
    ends: Literal["done", "in_review", "fails", "asks"] = "done"


@dataclass(frozen=True, slots=True)
class Word:
    """A comment in the past; without an agent it is the operator's."""

    days_ago: float
    body: str
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Tale:
    """One issue with its past. `now` says how it stands when the curtain rises: what is left
    `open`, wakes its agent at once (`starts`), waits in the `backlog`, or is the operator's."""

    key: str
    title: str
    text: str
    days_ago: float
    agent: str = ""
    project: str = ""
    priority: str = "medium"
    parent: str = ""
    blocked_by: tuple[str, ...] = ()
    past: tuple[Act | Word, ...] = field(default_factory=tuple)
    now: Literal["open", "starts", "backlog", "mine", "cancelled"] = "open"


TALES = (
    Tale(
        "gripper",
        "Design the gripper",
        "Three fingers, 500 g of grip, printable on an ordinary printer.",
        13.5,
        "Iris",
        "arm",
        "high",
        past=(
            Act(
                "Iris", 13.4, 9, "Two variants: a parallel jaw and three soft fingers.", "in_review"
            ),
            Word(13.0, "The soft fingers look right. Can they hold a screw as well?"),
            Act(
                "Iris", 12.9, 6, "They can, down to M4, with a finger tip of 6 mm. Drawing updated."
            ),
        ),
    ),
    Tale(
        "motors",
        "Compare three motor suppliers",
        "Price at 100 pieces, lead time, torque. Recommend one.",
        13.0,
        "Ellis",
        "arm",
        past=(
            Act(
                "Ellis",
                12.8,
                7,
                "**Recommendation: the second supplier.**\n\n| | price | weeks | Nm |\n"
                "|---|---|---|---|\n| first | 41 | 9 | 2.2 |\n"
                "| second | 38 | 4 | 2.1 |\n| third | 35 | 12 | 1.8 |",
            ),
        ),
    ),
    Tale(
        "stop",
        "Implement the emergency stop",
        "All joints at rest within 100 ms, whatever the planner does.",
        11.6,
        "Ellis",
        "arm",
        "critical",
        past=(
            Act("Ellis", 11.5, 11, "Stops within 62 ms in the worst of 200 trials. 8 tests added."),
        ),
    ),
    Tale(
        "stop-test",
        "Test the emergency stop on the bench",
        "Every joint, at full load, 50 times.",
        11.4,
        "Quinn",
        "arm",
        "high",
        blocked_by=("stop",),
        past=(
            Act("Quinn", 10.9, 8, "Joint 3 overran once in 50 trials (104 ms).", "in_review"),
            Word(10.6, "@Ellis can you look at joint 3 before we close this?"),
            Word(10.5, SAYS + "The brake of joint 3 was late by one cycle. Fixed.", "Ellis"),
            Act("Quinn", 10.2, 8, "200 more trials, the worst took 71 ms. All joints pass."),
        ),
    ),
    Tale(
        "home",
        "Home page for the website",
        "One picture, one sentence, one button.",
        9.7,
        "Iris",
        "site",
        past=(
            Act("Iris", 9.5, 10, "Draft with the arm at work in the first picture.", "in_review"),
            Word(9.1, "Approved. Please make the button say what happens next."),
            Act("Iris", 9.0, 4, "The button now reads “Get a price for my workshop”."),
        ),
    ),
    Tale(
        "market",
        "Sell through a marketplace",
        "Would it pay to list the arm at a marketplace?",
        8.8,
        "Jules",
        "launch",
        "low",
        past=(Act("Jules", 8.6, 6, "Fees of 18 % would take half of our margin.", "in_review"),),
        now="cancelled",
    ),
    Tale(
        "firmware",
        "Build the firmware update",
        "Customers update the arm themselves. It must never leave an arm that does not start.",
        7.5,
        "Ellis",
        "arm",
        "high",
    ),
    Tale(
        "sign",
        "Sign the firmware images",
        "The arm accepts only images signed by us.",
        7.4,
        "Ellis",
        "arm",
        "high",
        parent="firmware",
        past=(
            Act("Ellis", 7.1, 9, "Images are signed at build time and checked before the flash."),
        ),
    ),
    Tale(
        "rollback",
        "Roll back a failed update",
        "Power is cut in the middle: the old version must start.",
        7.3,
        "Quinn",
        "arm",
        "high",
        parent="firmware",
        past=(Act("Quinn", 3.2, 3, "", "fails"),),
    ),
    Tale(
        "update-doc",
        "Document the update",
        "One page, with a picture for each step.",
        7.2,
        "Wren",
        "arm",
        "low",
        parent="firmware",
        blocked_by=("rollback",),
    ),
    Tale(
        "colour",
        "Choose the colour of the housing",
        "It should look at home in a workshop and hide dirt.",
        5.4,
        "Iris",
        "arm",
        past=(
            Act(
                "Iris",
                5.2,
                5,
                "Two colours pass the dirt test: graphite and sand. Which one?",
                "asks",
            ),
        ),
    ),
    Tale(
        "announce",
        "Write the announcement of the Mark II",
        "For the newsletter: 250 words, no superlatives.",
        4.3,
        "Wren",
        "launch",
        past=(
            Act(
                "Wren",
                4.1,
                7,
                "**An arm for the workshop next door**\n\nIt lifts two kilograms, fits on half a"
                " bench and is taught by hand. (The draft goes on for 240 words.)",
                "in_review",
            ),
        ),
    ),
    Tale(
        "torque",
        "Order a second torque sensor",
        "Quinn needs it for the long-term test. Only a person can order.",
        3.0,
        project="arm",
        now="mine",
    ),
    Tale(
        "prices",
        "Survey: what do workshops pay today?",
        "Ten workshops, what they bought last, what it cost, what annoys them.",
        1.1,
        "Jules",
        "launch",
        "high",
        now="starts",
    ),
    Tale(
        "drift",
        "Fix the drift of joint 3",
        "After two hours it is off by 0.4 degrees.",
        0.9,
        "Ellis",
        "arm",
        "critical",
        now="starts",
    ),
    Tale(
        "posts",
        "Write three posts for the launch",
        "One for engineers, one for owners, one for apprentices.",
        0.6,
        "Wren",
        "launch",
        now="starts",
    ),
    Tale(
        "quarter",
        "Plan the next quarter",
        "Three things that we do, three that we do not.",
        0.4,
        "Robin",
        now="starts",
    ),
    Tale(
        "planner",
        "Refactor the motion planner",
        "Two thousand lines in one file; nobody dares to touch it.",
        0.3,
        "Ellis",
        "arm",
        "low",
        now="starts",
    ),
    Tale(
        "fair",
        "Booth at the spring fair",
        "Worth it? What would we show?",
        6.0,
        project="launch",
        priority="low",
        now="backlog",
    ),
    Tale(
        "manual",
        "Translate the manual",
        "Into the languages of the first ten customers, once we know them.",
        5.0,
        project="launch",
        priority="low",
        now="backlog",
    ),
)

# The regular rounds without an issue: who, and what they find.
ROUNDS = (
    ("Robin", "Looked through the board: all goals have somebody at work on them."),
    ("Quinn", "Ran the nightly regression in the simulator: 214 checks passed."),
    ("Robin", "Two issues wait for the operator; nothing else is stuck."),
    ("Quinn", "Nothing new to test since the last round."),
)
