// Package pgdriver keeps locks in PostgreSQL.
package pgdriver
