// Package etcdtest tests driver/etcd against etcd: one member in the process of the test, and
// clusters of members in processes of their own, which are killed and paused.
//
// It is a module of its own so that what a server of etcd requires stays out of the modules of
// those who import the driver.
package etcdtest
