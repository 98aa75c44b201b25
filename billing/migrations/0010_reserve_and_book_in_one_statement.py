"""A grant and a booking as one statement each, and what must be known before.

The totals of a company are rows that all its agents want. Done in one statement there is no way to
the program and back while they are locked. The order of locks is that of `billing/totals.py`: run,
reservation, totals narrow to wide. Plans are kept: making them took longer than following them.
"""

from django.db import migrations

TOTALS_OF = """
CREATE FUNCTION billing_totals_of(
    p_company uuid, p_agent uuid, p_project uuid, p_at timestamptz)
RETURNS TABLE (scope text, scope_id uuid, "window" text, period_start date,
               scope_place integer, window_place integer)
LANGUAGE sql IMMUTABLE AS $$
    SELECT whose.scope, whose.scope_id, period."window", period.start, whose.place, period.place
      FROM (VALUES ('agent', p_agent, 0), ('project', p_project, 1), ('company', p_company, 2))
           AS whose (scope, scope_id, place)
     CROSS JOIN (VALUES
               ('day', (p_at AT TIME ZONE 'UTC')::date, 0),
               ('month', date_trunc('month', p_at AT TIME ZONE 'UTC')::date, 1),
               ('lifetime', DATE '1970-01-01', 2)) AS period ("window", start, place)
     WHERE whose.scope_id IS NOT NULL
$$;
"""

# The company's own price: one for this very provider before one for any.
OWN_PRICE = """
CREATE FUNCTION billing_own_price(p_company uuid, p_provider text, p_model text, p_at timestamptz)
RETURNS TABLE (provider varchar, model varchar, effective_at timestamptz, input_pico bigint,
               output_pico bigint, cache_read_pico bigint, cache_write_pico bigint)
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT price.provider, price.model, price.effective_at, price.input_pico, price.output_pico,
           price.cache_read_pico, price.cache_write_pico
      FROM billing_modelprice price
     WHERE price.company_id = p_company AND upper(price.model) = upper(p_model)
       AND price.provider IN ('', lower(p_provider)) AND price.effective_at <= p_at
     ORDER BY price.provider = '', price.effective_at DESC, price.id DESC LIMIT 1;
END $$;
"""

# The project of the issue that a run is about, and the tightest limit of one run.
FACTS = """
CREATE FUNCTION billing_facts_of_run(
    p_company uuid, p_agent uuid, p_run uuid, p_project uuid,
    OUT project_id uuid, OUT run_limit bigint)
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    project_id := p_project;
    IF p_project IS NULL THEN
        SELECT issue.project_id INTO project_id
          FROM agents_heartbeatrun run JOIN issues_issue issue ON issue.id = run.issue_id
         WHERE run.id = p_run;
    END IF;
    SELECT MIN(budget.limit_micros) INTO run_limit FROM billing_budget budget
     WHERE budget."window" = 'run' AND budget.is_hard
       AND budget.scope_id IN (p_company, p_agent, project_id);
END $$;
"""

# A reservation must fit, and where nothing is left nothing fits, not even a free call. An agent's
# own daily cap is one more limit of its day. PC402 takes back what other totals already gave.
# `p_alone`: it is a transaction of its own, whose locks need not wait for the disk.
RESERVE = """
CREATE FUNCTION billing_reserve(
    p_id uuid, p_company uuid, p_agent uuid, p_project uuid, p_run uuid, p_kind text,
    p_provider text, p_model text, p_amount bigint, p_run_limit bigint, p_now timestamptz,
    p_alone boolean)
RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    today date := (p_now AT TIME ZONE 'UTC')::date;
    this_month date := date_trunc('month', p_now AT TIME ZONE 'UTC')::date;
    cap bigint;
    spent bigint;
    estimate billing_reservation%ROWTYPE;
    wanted integer;
    kept integer;
BEGIN
    IF p_alone THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF p_run_limit IS NOT NULL THEN
        SELECT run.cost_micros INTO spent FROM agents_heartbeatrun run WHERE run.id = p_run
           FOR NO KEY UPDATE;
    END IF;
    IF p_kind = 'run' THEN  -- takes the place of what was kept for this run before
        SELECT * INTO estimate FROM billing_reservation held
         WHERE held.run_id = p_run AND held.kind = 'run' AND held.state = 'held'
           FOR NO KEY UPDATE;
        UPDATE billing_reservation SET state = 'released', open_micros = 0, ended_at = p_now
         WHERE id = estimate.id;
    END IF;
    IF p_run_limit IS NOT NULL AND (
        COALESCE(spent, 0) >= p_run_limit
        OR COALESCE(spent, 0) + p_amount + (
            SELECT COALESCE(SUM(held.open_micros), 0) FROM billing_reservation held
             WHERE held.run_id = p_run AND held.state IN ('held', 'unknown')) > p_run_limit)
    THEN
        RAISE EXCEPTION 'no room in the run' USING ERRCODE = 'PC402';
    END IF;
    SELECT max_daily_cost_micros INTO cap FROM agents_agent WHERE id = p_agent;
    WITH line AS (
        SELECT scope, scope_id, "window", period_start, scope_place, window_place,
               SUM(amount)::bigint AS amount
          FROM (SELECT place.*, p_amount AS amount
                  FROM billing_totals_of(p_company, p_agent, p_project, p_now) place
                 UNION ALL
                SELECT place.*, -estimate.open_micros
                  FROM billing_totals_of(estimate.company_id, estimate.agent_id,
                                         estimate.project_id, estimate.granted_at) place
                 WHERE estimate.open_micros > 0) change
         GROUP BY 1, 2, 3, 4, 5, 6),
    applied AS (
        INSERT INTO billing_spend AS total
            (company_id, scope, scope_id, "window", period_start, spent_micros, reserved_micros,
             limit_micros, alert_at_micros, tokens, limit_tokens, events, unpriced_events,
             updated_at)
        SELECT p_company, line.scope, line.scope_id, line."window", line.period_start,
               0, line.amount, hard.limit_micros,
               (budget.limit_micros * LEAST(50, budget.warn_percent) + 99) / 100,
               0, hard.limit_tokens, 0, 0, p_now
          FROM line
          LEFT JOIN billing_budget budget
                 ON budget.scope = line.scope AND budget.scope_id = line.scope_id
                AND budget."window" = line."window"
          LEFT JOIN billing_budget hard ON hard.id = budget.id AND hard.is_hard
         CROSS JOIN LATERAL (SELECT LEAST(hard.limit_micros,
               CASE WHEN line.scope = 'agent' AND line."window" = 'day' THEN cap END)) AS wall (at)
         WHERE COALESCE(line.amount <= wall.at AND 0 < wall.at, TRUE)
           AND COALESCE(0 < hard.limit_tokens, TRUE)
         ORDER BY line.scope_place, line.window_place, line.period_start, line.scope_id
        ON CONFLICT (scope, scope_id, "window", period_start) DO UPDATE
           SET reserved_micros = total.reserved_micros + excluded.reserved_micros,
               updated_at = excluded.updated_at
         WHERE total.period_start NOT IN (today, this_month, DATE '1970-01-01')
            OR (COALESCE(
                    total.spent_micros + total.reserved_micros + excluded.reserved_micros
                    <= LEAST(total.limit_micros, CASE WHEN total.scope = 'agent'
                             AND total."window" = 'day' THEN cap END)
                    AND total.spent_micros < LEAST(total.limit_micros, CASE WHEN
                             total.scope = 'agent' AND total."window" = 'day' THEN cap END), TRUE)
                AND COALESCE(total.tokens < total.limit_tokens, TRUE))
        RETURNING 1)
    SELECT (SELECT count(*) FROM line), (SELECT count(*) FROM applied) INTO wanted, kept;
    IF kept <> wanted THEN
        RAISE EXCEPTION 'no room in a budget' USING ERRCODE = 'PC402';
    END IF;
    INSERT INTO billing_reservation
        (id, company_id, agent_id, project_id, run_id, kind, state, provider, model,
         granted_micros, open_micros, settled_micros, granted_at)
    VALUES (p_id, p_company, p_agent, p_project, p_run, p_kind, 'held', p_provider, p_model,
            p_amount, p_amount, 0, p_now);
END $$;
"""

# `p_event` is a row of the ledger. `p_settles` names the calls' prefix: a receipt of the run's own
# calls ends the oldest grant of a call, any receipt shrinks that of a whole run. PC410: the run is
# older than `p_oldest`, when a repeat would no longer be known as one. PC403: a mark or a limit is
# passed and somebody must be told, which takes a transaction of the caller's (`p_alone` false);
# then `due` holds the totals that it is about.
BOOK = """
CREATE FUNCTION billing_book(
    p_event jsonb, p_key text, p_fingerprint text, p_is_own_call boolean, p_is_now boolean,
    p_oldest timestamptz, p_alone boolean)
RETURNS TABLE (is_new boolean, over_run boolean, due jsonb)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    event billing_costevent%ROWTYPE := jsonb_populate_record(NULL::billing_costevent, p_event);
    grant_ billing_reservation%ROWTYPE;
    cost bigint := COALESCE(event.cost_micros, 0);
    unpriced integer := (event.cost_micros IS NULL)::integer;
    uncached bigint := GREATEST(0, event.input_tokens - event.cache_read_tokens)
                       + event.output_tokens;
    run_created_at timestamptz;
    reached boolean := FALSE;
    freed bigint := 0;
    told jsonb;
BEGIN
    IF p_alone THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    INSERT INTO billing_costkey (company_id, key, fingerprint, event_id, created_at)
    VALUES (event.company_id, p_key, p_fingerprint, event.id, event.recorded_at)
        ON CONFLICT (company_id, key) DO NOTHING;
    IF NOT FOUND THEN
        RETURN QUERY SELECT FALSE, FALSE, NULL::jsonb;
        RETURN;
    END IF;
    IF event.project_id IS NULL AND event.issue_id IS NOT NULL THEN
        SELECT project_id INTO event.project_id FROM issues_issue WHERE id = event.issue_id;
    END IF;
    IF event.run_id IS NOT NULL THEN
        UPDATE agents_heartbeatrun run
           SET input_tokens = run.input_tokens + event.input_tokens,
               cached_tokens = run.cached_tokens + event.cache_read_tokens,
               output_tokens = run.output_tokens + event.output_tokens,
               cost_micros = run.cost_micros + cost,
               unpriced_calls = run.unpriced_calls + unpriced
         WHERE run.id = event.run_id AND run.company_id = event.company_id
        RETURNING run.created_at, COALESCE(run.cost_micros >= (
            SELECT MIN(limit_micros) FROM billing_budget
             WHERE "window" = 'run' AND is_hard
               AND scope_id IN (event.agent_id, event.company_id, event.project_id)), FALSE)
          INTO run_created_at, reached;
        IF run_created_at < p_oldest AND event.reverses_id IS NULL THEN
            RAISE EXCEPTION 'the run is too old' USING ERRCODE = 'PC410';
        END IF;
        SELECT * INTO grant_ FROM billing_reservation held
         WHERE held.run_id = event.run_id AND held.state IN ('held', 'unknown')
           AND (held.kind = 'run' OR p_is_own_call)
         ORDER BY held.granted_at, held.id LIMIT 1 FOR NO KEY UPDATE;
        IF grant_.kind = 'call' THEN
            freed := grant_.open_micros;
            UPDATE billing_reservation
               SET open_micros = 0, state = 'settled', ended_at = event.recorded_at,
                   settled_micros = settled_micros + cost
             WHERE id = grant_.id;
            IF p_is_now THEN
                -- A call belongs to the period whose limit it was granted under: else what was
                -- kept aside before midnight would be spent beyond the wall of the new day.
                event.occurred_at := LEAST(event.occurred_at, grant_.granted_at);
            END IF;
        ELSIF grant_.kind = 'run' THEN
            freed := LEAST(grant_.open_micros, GREATEST(0, cost));
            UPDATE billing_reservation
               SET open_micros = open_micros - freed, settled_micros = settled_micros + cost
             WHERE id = grant_.id;
        END IF;
    END IF;
    INSERT INTO billing_costevent SELECT event.*;
    INSERT INTO billing_daycost AS day
        (company_id, day, agent_id, project_id, provider, model, spent_micros, events,
         unpriced_events, tokens, input_tokens, cached_tokens, output_tokens, last_at)
    VALUES (event.company_id, (event.occurred_at AT TIME ZONE 'UTC')::date, event.agent_id,
            event.project_id, event.provider, event.model, cost, 1, unpriced, uncached,
            event.input_tokens, event.cache_read_tokens, event.output_tokens, event.occurred_at)
        ON CONFLICT (company_id, day, agent_id, project_id, provider, model) DO UPDATE
       SET spent_micros = day.spent_micros + excluded.spent_micros,
           events = day.events + 1,
           unpriced_events = day.unpriced_events + excluded.unpriced_events,
           tokens = day.tokens + excluded.tokens,
           input_tokens = day.input_tokens + excluded.input_tokens,
           cached_tokens = day.cached_tokens + excluded.cached_tokens,
           output_tokens = day.output_tokens + excluded.output_tokens,
           last_at = GREATEST(day.last_at, excluded.last_at);
    WITH line AS (
        SELECT scope, scope_id, "window", period_start, scope_place, window_place,
               SUM(spent)::bigint AS spent, SUM(reserved)::bigint AS reserved,
               SUM(tokens)::bigint AS tokens, SUM(events)::bigint AS events,
               SUM(unpriced)::bigint AS unpriced
          FROM (SELECT place.*, cost AS spent, 0 AS reserved, uncached AS tokens, 1 AS events,
                       unpriced
                  FROM billing_totals_of(event.company_id, event.agent_id, event.project_id,
                                         event.occurred_at) place
                 UNION ALL
                SELECT place.*, 0, -freed, 0, 0, 0
                  FROM billing_totals_of(grant_.company_id, grant_.agent_id, grant_.project_id,
                                         grant_.granted_at) place
                 WHERE freed <> 0) change
         GROUP BY 1, 2, 3, 4, 5, 6),
    applied AS (
        INSERT INTO billing_spend AS total
            (company_id, scope, scope_id, "window", period_start, spent_micros, reserved_micros,
             limit_micros, alert_at_micros, tokens, limit_tokens, events, unpriced_events,
             updated_at)
        SELECT event.company_id, line.scope, line.scope_id, line."window", line.period_start,
               line.spent, line.reserved, hard.limit_micros,
               (budget.limit_micros * LEAST(50, budget.warn_percent) + 99) / 100,
               line.tokens, hard.limit_tokens, line.events, line.unpriced, event.recorded_at
          FROM line
          LEFT JOIN billing_budget budget
                 ON budget.scope = line.scope AND budget.scope_id = line.scope_id
                AND budget."window" = line."window"
          LEFT JOIN billing_budget hard ON hard.id = budget.id AND hard.is_hard
         ORDER BY line.scope_place, line.window_place, line.period_start, line.scope_id
        ON CONFLICT (scope, scope_id, "window", period_start) DO UPDATE
           SET spent_micros = total.spent_micros + excluded.spent_micros,
               reserved_micros = total.reserved_micros + excluded.reserved_micros,
               tokens = total.tokens + excluded.tokens,
               events = total.events + excluded.events,
               unpriced_events = total.unpriced_events + excluded.unpriced_events,
               updated_at = excluded.updated_at
        RETURNING total.id, total.scope, total.scope_id, total."window", total.period_start,
                  total.spent_micros, total.reserved_micros,
                  LEAST(total.limit_micros, CASE WHEN total.scope = 'agent'
                        AND total."window" = 'day' THEN
                      (SELECT max_daily_cost_micros FROM agents_agent
                        WHERE id = total.scope_id) END) AS limit_micros,
                  total.alert_at_micros, total.tokens, total.limit_tokens, total.events,
                  total.unpriced_events)
    SELECT jsonb_agg(to_jsonb(applied)) INTO told FROM applied
     WHERE applied.period_start IN (
               (event.recorded_at AT TIME ZONE 'UTC')::date,
               date_trunc('month', event.recorded_at AT TIME ZONE 'UTC')::date,
               DATE '1970-01-01')
       AND (applied.spent_micros >= applied.limit_micros
            OR applied.tokens >= applied.limit_tokens
            OR applied.spent_micros >= applied.alert_at_micros);
    IF p_alone AND told IS NOT NULL THEN
        RAISE EXCEPTION 'somebody must be told' USING ERRCODE = 'PC403';
    END IF;
    RETURN QUERY SELECT TRUE, reached, told;
END $$;
"""

DROP = """
DROP FUNCTION billing_book;
DROP FUNCTION billing_reserve;
DROP FUNCTION billing_facts_of_run;
DROP FUNCTION billing_own_price;
DROP FUNCTION billing_totals_of;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0006_provider_connections'),
        ('billing', '0009_indexes_of_the_minutes_round'),
        ('issues', '0001_initial'),
    ]

    operations = [migrations.RunSQL([TOTALS_OF, OWN_PRICE, FACTS, RESERVE, BOOK], DROP)]
