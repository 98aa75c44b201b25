"""No total may have less than nothing kept aside. A trigger and not a CHECK: an upsert proposes
the change as if it were the row, and a CHECK would refuse the proposal of every release."""

from django.db import migrations

CREATE = """
CREATE FUNCTION billing_refuse_negative_reserve() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'more released than reserved for % %', NEW.scope, NEW.scope_id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'reserved_not_negative';
END $$;
CREATE TRIGGER reserved_not_negative BEFORE UPDATE ON billing_spend
    FOR EACH ROW WHEN (NEW.reserved_micros < 0)
    EXECUTE FUNCTION billing_refuse_negative_reserve();
"""

DROP = """
DROP TRIGGER reserved_not_negative ON billing_spend;
DROP FUNCTION billing_refuse_negative_reserve();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0005_reservations_and_incidents'),
    ]

    operations = [migrations.RunSQL(CREATE, DROP)]
