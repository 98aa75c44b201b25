from django.db import migrations

ADD = """
CREATE TRIGGER seals_are_append_only BEFORE UPDATE OR DELETE ON companies_seal
    FOR EACH ROW EXECUTE FUNCTION paperclip_refuse_change();
"""

REMOVE = "DROP TRIGGER seals_are_append_only ON companies_seal;"


class Migration(migrations.Migration):

    dependencies = [
        ('companies', '0005_seals'),
    ]

    operations = [migrations.RunSQL(ADD, REMOVE)]
