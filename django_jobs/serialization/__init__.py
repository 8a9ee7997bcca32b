"""Values, arguments, results and records: conversion to and from bytes and JSON."""
