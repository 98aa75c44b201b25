"""Companies, goals, projects and activity as the API shows them."""

from __future__ import annotations

from typing import Any

from companies.models import Activity, Company, Goal, Project


def company(row: Company, **extra: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "description": row.description or None,
        "status": row.status,
        "pauseReason": row.pause_reason or None,
        "issuePrefix": row.issue_prefix,
        "maxConcurrentAgents": row.max_concurrent_agents,
        "isDemo": row.is_demo,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
        **extra,
    }


def project(row: Project | None) -> dict[str, Any] | None:
    """A project, without its numbers."""
    if row is None:
        return None
    goals = [{"id": row.goal_id, "title": row.goal.title}] if row.goal else []
    return {
        "id": row.id,
        "companyId": row.company_id,
        "goalId": row.goal_id,
        "goalIds": [one["id"] for one in goals],
        "goals": goals,
        "name": row.name,
        "description": row.description or None,
        "status": row.status,
        "leadAgentId": row.lead_agent_id,
        "targetDate": row.target_date,
        "archivedAt": row.archived_at,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
    }


def goal(row: Goal | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "id": row.id,
        "companyId": row.company_id,
        "title": row.title,
        "description": row.description or None,
        "level": row.level,
        "status": row.status,
        "parentId": row.parent_id,
        "ownerAgentId": row.owner_agent_id,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
    }


def activity(row: Activity) -> dict[str, Any]:
    agent = row.actor_type == Activity.ActorType.AGENT
    return {
        "id": row.id,
        "companyId": row.company_id,
        "actorType": row.actor_type,
        "actorId": row.actor_id,
        "actorName": row.actor_name,
        "action": row.action,
        "entityType": row.entity_type,
        "entityId": row.entity_id,
        "entityName": row.entity_name,
        "agentId": row.actor_id if agent else None,
        "runId": row.run_id,
        "details": row.details,
        "createdAt": row.occurred_at,
    }
