-- What a store sends at start-up on a direct connection; a pooler may refuse it.
ALTER ROLE hermes SET jit = off;
ALTER ROLE hermes SET lock_timeout = '1s';
