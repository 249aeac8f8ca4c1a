// Package sqltest has the tests of package sqlfence on real databases. It is a module of its
// own because the library requires no database.
//
// PostgreSQL and MariaDB come from the distribution and are started by the tests. With
// HOLDFAST_REQUIRE_POSTGRES=1 and HOLDFAST_REQUIRE_MARIADB=1 a missing one is a failure.
package sqltest
