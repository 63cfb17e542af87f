-- Roles of a control plane on PostgreSQL 15 or newer, with row-level security for each region. `crkafka init --roles` prints this;
-- docs/security.md tells who may do what. Whoever runs it owns the tables and may make roles. Safe to repeat, and to be
-- repeated after each `crkafka init` that has migrated.
--
--   crkafka init --roles | psql -v ON_ERROR_STOP=1 -d DATABASE
--   CREATE ROLE orders_host LOGIN IN ROLE crkafka_region;
--   \password orders_host
--   INSERT INTO crkafka.region_access VALUES ('orders_host', 'orders');
BEGIN;
SET LOCAL client_min_messages TO warning; -- what is not there yet is no news

DO $$
DECLARE wanted text;
BEGIN
  IF current_setting('server_version_num')::int < 150000 THEN
    RAISE EXCEPTION 'These roles need PostgreSQL 15 or newer: older views cannot ask with the rights of who reads them.';
  END IF;
  IF to_regclass('crkafka.crkafka_version') IS NULL THEN
    RAISE EXCEPTION 'There are no tables in the schema crkafka of this database: run `crkafka init` first.';
  END IF;
  FOREACH wanted IN ARRAY ARRAY['crkafka_owner', 'crkafka_region', 'crkafka_member', 'crkafka_reader', 'crkafka_viewer'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
    END IF;
  END LOOP;
  IF NOT pg_has_role(current_user, 'crkafka_owner', 'USAGE') THEN
    EXECUTE format('GRANT crkafka_owner TO %I', current_user);
  END IF;
END $$;

SET LOCAL search_path TO crkafka;

-- Which login, or group of logins, may use which region.
CREATE TABLE IF NOT EXISTS region_access (role name NOT NULL, region text NOT NULL, PRIMARY KEY (role, region));

-- Who took a lease: a reader ends and renews its own alone.
ALTER TABLE lease ADD COLUMN IF NOT EXISTS made_by name NOT NULL DEFAULT current_user;

GRANT USAGE ON SCHEMA crkafka TO crkafka_region, crkafka_member, crkafka_reader, crkafka_viewer;
REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA crkafka FROM crkafka_member; -- an older version granted more
GRANT SELECT ON ALL TABLES IN SCHEMA crkafka TO crkafka_region, crkafka_member, crkafka_reader, crkafka_viewer;

-- Refuses an update by a member: what is recorded once keeps all columns but the one that the trigger names; the region's head,
-- epoch and counters only grow, and that its control plane went back is for an operator to judge.
CREATE OR REPLACE FUNCTION crkafka_keeps() RETURNS trigger LANGUAGE plpgsql
  SET search_path = pg_catalog, pg_temp AS $$ -- no function of a login of its own comes before PostgreSQL's
BEGIN
  IF pg_has_role('crkafka_region', 'USAGE') OR NOT pg_has_role('crkafka_member', 'USAGE') THEN
    RETURN NEW;
  ELSIF TG_TABLE_NAME <> 'region' THEN
    IF to_jsonb(NEW) - TG_ARGV[0] = to_jsonb(OLD) - TG_ARGV[0] THEN
      RETURN NEW;
    END IF;
  ELSIF NEW.epoch >= OLD.epoch AND NEW.version >= OLD.version AND NEW.filling >= OLD.filling AND NEW.opened >= OLD.opened
        AND NEW.next_event >= OLD.next_event AND NEW.went_back >= OLD.went_back
        AND (NEW.head = OLD.head OR (NEW.head > OLD.head AND EXISTS (
          SELECT FROM crkafka.checkpoint c WHERE c.region = NEW.name AND c.id = NEW.head AND c.status = 'MERGED'))) THEN
    RETURN NEW;
  END IF;
  RAISE insufficient_privilege USING MESSAGE =
    format('permission denied: a member takes nothing back that table %s has recorded', TG_TABLE_NAME);
END $$;
GRANT CREATE ON SCHEMA crkafka TO crkafka_owner;
ALTER FUNCTION crkafka_keeps() OWNER TO crkafka_owner;
CREATE OR REPLACE TRIGGER crkafka_keeps BEFORE UPDATE ON region FOR EACH ROW EXECUTE FUNCTION crkafka_keeps();
CREATE OR REPLACE TRIGGER crkafka_keeps BEFORE UPDATE ON initial_offset FOR EACH ROW EXECUTE FUNCTION crkafka_keeps('forgotten');
-- A reset is dated again after the database's clock stepped back.
CREATE OR REPLACE TRIGGER crkafka_keeps BEFORE UPDATE ON reset FOR EACH ROW EXECUTE FUNCTION crkafka_keeps('at');

DO $$
DECLARE
  here record;
  mine text;
  unmerged text;
  passing text;
BEGIN
  FOR here IN SELECT relname, relkind FROM pg_class
              WHERE relnamespace = 'crkafka'::regnamespace AND relkind IN ('r', 'v') ORDER BY relkind LOOP
    EXECUTE format('ALTER TABLE %I OWNER TO crkafka_owner', here.relname);
    IF here.relkind = 'v' THEN
      EXECUTE format('ALTER VIEW %I SET (security_invoker = true)', here.relname);
      CONTINUE;
    END IF;
    CONTINUE WHEN here.relname = 'crkafka_version';
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', here.relname);
    EXECUTE format('DROP POLICY IF EXISTS crkafka_uses ON %I', here.relname);
    EXECUTE format('DROP POLICY IF EXISTS crkafka_sees ON %I', here.relname);
    EXECUTE format('DROP POLICY IF EXISTS crkafka_adds ON %I', here.relname);
    EXECUTE format('DROP POLICY IF EXISTS crkafka_changes ON %I', here.relname);
    EXECUTE format('DROP POLICY IF EXISTS crkafka_drops ON %I', here.relname);
    IF here.relname = 'region_access' THEN
      CREATE POLICY crkafka_sees ON region_access FOR SELECT
        USING (EXISTS (SELECT FROM pg_roles r WHERE r.rolname = role AND pg_has_role(r.oid, 'USAGE')));
      CONTINUE;
    END IF;
    -- The question without a row of its own is asked once in a statement, not once for each row.
    mine := format('%I = ANY (ARRAY(SELECT a.region FROM crkafka.region_access a))',
                   CASE WHEN here.relname = 'region' THEN 'name' ELSE 'region' END);
    EXECUTE format('GRANT INSERT, UPDATE, DELETE ON %I TO crkafka_region', here.relname);
    EXECUTE format('CREATE POLICY crkafka_uses ON %I TO crkafka_region USING (%s) WITH CHECK (%s)', here.relname, mine, mine);
    EXECUTE format('CREATE POLICY crkafka_sees ON %I FOR SELECT TO crkafka_region, crkafka_member, crkafka_reader, crkafka_viewer USING (%s)',
                   here.relname,
                   -- That a group belongs to another region has to be seen by whoever wants it.
                   CASE WHEN here.relname = 'consumer_group' THEN 'true' ELSE mine END);

    -- Which numbers are dead, and which records erased, is for operators, who rewind and erase.
    CONTINUE WHEN here.relname IN ('dead_numbers', 'erased_records');
    -- A member adds events and changes none; it binds the first group of its region and no other. What makes a checkpoint it adds
    -- to an open one, in bulk: those are looked up once. A number has its fillers before it has a checkpoint.
    unmerged := format($q$NOT EXISTS (SELECT FROM crkafka.checkpoint c WHERE c.region = %I.region AND c.id = %I.checkpoint
                                      AND c.status <> 'OPEN')$q$, here.relname, here.relname);
    EXECUTE format('GRANT INSERT ON %I TO crkafka_member', here.relname);
    EXECUTE format('CREATE POLICY crkafka_adds ON %I FOR INSERT TO crkafka_member WITH CHECK (%s)', here.relname, mine
      || CASE here.relname
           WHEN 'consumer_group' THEN ' AND NOT EXISTS (SELECT FROM crkafka.consumer_group g WHERE g.region = consumer_group.region)'
           WHEN 'filler' THEN ' AND ' || unmerged
           ELSE CASE WHEN here.relname IN ('contribution', 'contributed_offset', 'segment', 'merged_offset')
             THEN $q$ AND (region, checkpoint) IN (SELECT c.region, c.id FROM crkafka.checkpoint c WHERE c.status = 'OPEN')$q$
             ELSE '' END END);
    IF here.relname NOT IN ('event', 'consumer_group', 'contribution', 'contributed_offset', 'segment', 'merged_offset') THEN
      -- Of a region it changes the state alone: what the region is, its configuration, and what a later version adds are for operators.
      EXECUTE format('GRANT UPDATE (%s) ON %I TO crkafka_member',
        CASE WHEN here.relname = 'region' THEN
          'version, epoch, phase, phase_since, wanted, wait_for_wanted, head, open_cut, filling, opened, handover_json, next_event, born, '
          'cluster_id, group_id, reset_cause, reset_at, not_before, settled_at, consecutive, failing, proven_epoch, started_epoch, '
          'last_cut_at, resumed_at, asked_epoch, asked_head, asked_by, stop_reason, stop_member, stopping, stopping_since, dropped_json, '
          'went_back'
        ELSE (SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
              WHERE attrelid = format('crkafka.%I', here.relname)::regclass AND attnum > 0 AND NOT attisdropped) END,
        here.relname);
      EXECUTE format('CREATE POLICY crkafka_changes ON %I FOR UPDATE TO crkafka_member USING (%s) WITH CHECK (%s)', here.relname,
        -- What is merged, superseded or retired stays: going back, and retirement, are for operators.
        mine || CASE here.relname
          WHEN 'checkpoint' THEN $q$ AND status = 'OPEN'$q$
          WHEN 'filler' THEN ' AND ' || unmerged
          WHEN 'lease' THEN $q$ AND (slot = '' OR made_by = current_user)$q$
          ELSE '' END,
        mine || CASE here.relname WHEN 'filler' THEN ' AND ' || unmerged ELSE '' END);
    END IF;
    -- It deletes the rows of a cut that became no checkpoint, and what passes: alarms, its own leases, the pauses of what it lost.
    passing := CASE
      WHEN here.relname IN ('filler', 'contribution', 'contributed_offset', 'segment') THEN format(
        $q$NOT EXISTS (SELECT FROM crkafka.checkpoint c WHERE c.region = %I.region AND c.id = %I.checkpoint
                       AND c.status NOT IN ('OPEN', 'ABORTED', 'EMPTY'))$q$, here.relname, here.relname)
      WHEN here.relname = 'checkpoint' THEN $q$status = 'EMPTY'$q$
      WHEN here.relname = 'lease' THEN $q$slot <> '' AND made_by = current_user$q$
      WHEN here.relname = 'pause_mark' THEN $q$member <> ''$q$
      WHEN here.relname = 'alarm' THEN 'true'
    END;
    CONTINUE WHEN passing IS NULL;
    EXECUTE format('GRANT DELETE ON %I TO crkafka_member', here.relname);
    EXECUTE format('CREATE POLICY crkafka_drops ON %I FOR DELETE TO crkafka_member USING (%s AND %s)', here.relname, mine, passing);
  END LOOP;
END $$;

-- A reader holds what it reads against retirement, by a lease; for that it locks the region's row, and cannot change it.
GRANT INSERT, UPDATE, DELETE ON lease TO crkafka_reader;
GRANT UPDATE (version) ON region TO crkafka_reader;
DROP POLICY IF EXISTS crkafka_holds ON lease;
CREATE POLICY crkafka_holds ON lease TO crkafka_reader
  USING (kind = 'reader' AND made_by = current_user)
  WITH CHECK (kind = 'reader' AND made_by = current_user
              AND region = ANY (ARRAY(SELECT a.region FROM crkafka.region_access a)));
DROP POLICY IF EXISTS crkafka_locks ON region;
CREATE POLICY crkafka_locks ON region FOR UPDATE TO crkafka_reader
  USING (name = ANY (ARRAY(SELECT a.region FROM crkafka.region_access a))) WITH CHECK (false);

ALTER SCHEMA crkafka OWNER TO crkafka_owner;

-- By it a control plane tells itself from its copy; where it is not ours to grant, host and port have to do.
DO $$
BEGIN
  GRANT EXECUTE ON FUNCTION pg_control_system() TO crkafka_owner, crkafka_region, crkafka_member, crkafka_reader;
EXCEPTION WHEN insufficient_privilege THEN
  RAISE WARNING 'pg_control_system() was not granted: only a superuser can.';
END $$;

COMMIT;
