//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"strconv"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/fence/httpfence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
)

// bank is the server.
type bank struct {
	db     *sql.DB
	server *http.Server
	url    string
}

// openBank makes a database and serves it. That fences are checked takes three lines.
func openBank(ctx context.Context, file string, guard bool) (*bank, error) {
	dsn := "file:" + file + "?_pragma=busy_timeout(5000)"
	db, err := sql.Open("sqlite", dsn)
	if guard {
		db, err = sqlfence.Open("sqlite", dsn, sqlfence.SQLite) // 1: transactions check the fences of their contexts
	}
	if err != nil {
		return nil, err
	}
	if err := sqlfence.Migrate(ctx, db, sqlfence.SQLite); err != nil { // 2: in a table
		return nil, err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (100)"); err != nil {
		return nil, err
	}
	b := &bank{db: db}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /balance", b.get)
	mux.HandleFunc("PUT /balance", b.put)
	b.server = &http.Server{Handler: httpfence.Handler(nil, mux)} // 3: which have them from requests

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.url = "http://" + l.Addr().String() + "/balance"
	go func() { _ = b.server.Serve(l) }()
	return b, nil
}

func (b *bank) close() {
	_ = b.server.Close()
	_ = b.db.Close()
}

func (b *bank) balance(ctx context.Context) (n int, err error) {
	err = b.db.QueryRowContext(ctx, "SELECT balance FROM account").Scan(&n)
	return n, err
}

func (b *bank) get(w http.ResponseWriter, r *http.Request) {
	n, err := b.balance(r.Context())
	if answered(w, err) {
		return
	}
	_, _ = fmt.Fprint(w, n)
}

func (b *bank) put(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.FormValue("balance"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, err = b.db.ExecContext(r.Context(), "UPDATE account SET balance = ?", n)
	answered(w, err)
}

// answered reports whether there was an error.
func answered(w http.ResponseWriter, err error) bool {
	if err != nil && !httpfence.Refused(w, err) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	return err != nil
}
