-- Two roles and a database for quotalog, made once by a superuser with psql. The passwords come from the environment:
--
--   QUOTALOG_OWNER_PASSWORD=… QUOTALOG_NODE_PASSWORD=… psql -v ON_ERROR_STOP=1 -f roles.sql
--
-- quotalog_owner makes and changes the tables, and is used for upgrades and copies. quotalog is what the nodes run
-- as: it reads and writes rows, and can neither change nor empty a table.
\set owner_password `printf %s "$QUOTALOG_OWNER_PASSWORD"`
\set node_password `printf %s "$QUOTALOG_NODE_PASSWORD"`

CREATE ROLE quotalog_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE quotalog LOGIN PASSWORD :'node_password';
CREATE DATABASE quotalog OWNER quotalog_owner ENCODING 'UTF8' TEMPLATE template0;
REVOKE ALL ON DATABASE quotalog FROM PUBLIC;
GRANT CONNECT ON DATABASE quotalog TO quotalog;

\connect quotalog
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT CREATE ON SCHEMA public TO quotalog_owner;
ALTER DEFAULT PRIVILEGES FOR ROLE quotalog_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO quotalog;
ALTER DEFAULT PRIVILEGES FOR ROLE quotalog_owner IN SCHEMA public
    GRANT USAGE ON SEQUENCES TO quotalog;
